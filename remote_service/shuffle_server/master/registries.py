"""The registries of a cluster as one of its masters has them: it answers for its own, and names the others' masters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from shuffle_api.errors import InvalidArgument, WrongMaster
from shuffle_api.ids import registry_of
from shuffle_server.master.auth import APP_OF
from shuffle_server.registry_names import home, shown
from shuffle_transport.proto import flight_shuffle_pb2 as pb

HELLO = "Hello"


@dataclass(frozen=True, slots=True)
class Registries:
    """The registries as one master has them.

    :ivar own: the name of its own.
    :ivar masters: the addresses of the masters of each, its own among them; empty: it is alone.
    """

    own: str = ""
    masters: Mapping[str, str] = field(default_factory=dict)

    def check(self, method: str, request: Any) -> None:
        """Refuse what another registry has to answer.

        :raises WrongMaster: with the addresses of who answers it.
        :raises InvalidArgument: no registry here does.
        """
        if method == HELLO:
            app = request.app
            if app:
                self._check(app, registry_of(app) if "~" in app else self._home(app))
        elif (app_of := APP_OF.get(method)) is not None:
            app = app_of(request)
            self._check(app, registry_of(app))

    def _home(self, app: str) -> str:
        return home(app, self.masters or (self.own,))

    def _check(self, app: str, registry: str) -> None:
        if registry == self.own:
            return
        masters = self.masters.get(registry)
        if masters is None:
            known = ", ".join(map(shown, sorted({self.own, *self.masters})))
            raise InvalidArgument(
                f"application {app!r} is of {shown(registry)}; the masters here are of {known}",
                remedy="use a master of that registry, or name it in --masters of all masters",
            )
        error = WrongMaster(
            f"application {app!r} belongs to {shown(registry)}, this master is of {shown(self.own)}",
            remedy=f"send the request to {masters}",
        )
        error.masters = masters
        raise error

    def check_join(self, registry: str) -> None:
        """:raises InvalidArgument: a worker takes this master for one of another registry."""
        if registry != self.own:
            raise InvalidArgument(
                f"the worker joins this master as one of {shown(registry)}; it is of {shown(self.own)}",
                remedy=f"give the worker the master's address as --master {self.own}=HOST:PORT"
                if self.own
                else "give the worker the master's address without a name, or the master --registry",
            )

    def check_apps(self, apps: Collection[str], where: str) -> None:
        """:raises InvalidArgument: the journal is of another registry."""
        other = next((app for app in apps if registry_of(app) != self.own), None)
        if other is not None:
            raise InvalidArgument(
                f"{where} has application {other!r}, which is of {shown(registry_of(other))}, and the name of this"
                f" master's registry is {self.own!r}",
                remedy="give this master the --registry that it had, or another --data-dir or --metadata",
            )

    def messages(self) -> list[pb.RegistryAddress]:
        """All of them, for who asks."""
        return [pb.RegistryAddress(name=name, masters=masters) for name, masters in self.masters.items()]


ALONE = Registries()
