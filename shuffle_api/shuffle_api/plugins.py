"""Find plugins by name. Ours and a stranger's are found the same way: entry points of group `shuffle.plugins`.

    [project.entry-points."shuffle.plugins"]
    mine = "my_package:MyShuffle"

The name is what users write and what a `ShuffleHandle` carries to the tasks.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from shuffle_api.errors import InvalidArgument, UnknownPlugin
from shuffle_api.interfaces import NO_OPTIONS, Options, ShufflePlugin

GROUP = "shuffle.plugins"


def known_plugins() -> tuple[str, ...]:
    """The names of all installed plugins, sorted."""
    return tuple(sorted(entry_points(group=GROUP).names))


def load_plugin(name: str) -> type[ShufflePlugin]:
    """The class of the plugin `name`.

    :raises UnknownPlugin: no installed distribution offers it; the error lists the known ones.
    :raises InvalidArgument: two distributions offer it, it cannot be imported, or is no `ShufflePlugin`
        of that name.
    """
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        raise UnknownPlugin(name, known_plugins())
    if len(found) > 1:
        raise InvalidArgument(
            f"several distributions offer the shuffle plugin {name!r}: {', '.join(sorted(found))}",
            remedy="uninstall all but one of them",
        )
    [point] = found.values()
    return _load(point)


def open_plugin(name: str, options: Options = NO_OPTIONS) -> ShufflePlugin:
    """Load the plugin `name` and open it with `options`. Raises what `load_plugin` and the plugin raise."""
    return load_plugin(name)(options)


def _load(point: EntryPoint) -> type[ShufflePlugin]:
    where = f"shuffle plugin {point.name!r} ({point.value})"
    try:
        cls = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"{where} cannot be loaded: {error}", remedy="reinstall its distribution") from error
    if not (isinstance(cls, type) and issubclass(cls, ShufflePlugin)):
        raise InvalidArgument(f"{where} is not a subclass of shuffle_api.ShufflePlugin", remedy="correct the plugin")
    # Tasks load a plugin by the name in their handle, so it has to be the one the driver loaded.
    if getattr(cls, "name", None) != point.name:
        raise InvalidArgument(f"{where} calls itself {getattr(cls, 'name', None)!r}", remedy="set its `name`")
    return cls
