"""A handle of a hybrid shuffle names two places: the store's, and that of the driver, who knows the live writers."""

from __future__ import annotations

from dataclasses import replace

from shuffle_api.errors import InvalidArgument
from shuffle_api.values import ShuffleHandle

NAME = "hybrid"
_BETWEEN = "|"  # in no address


def join_handle(store: ShuffleHandle, live: str) -> ShuffleHandle:
    """The handle of the shuffle that the store's plugin calls `store`, whose driver is reached at `live`."""
    return replace(store, plugin=NAME, endpoint=f"{store.endpoint}{_BETWEEN}{live}")


def split_handle(handle: ShuffleHandle) -> tuple[ShuffleHandle, str]:
    """The store's handle, and the driver's address.

    :raises InvalidArgument: it is no handle of this plugin.
    """
    store, between, live = handle.endpoint.partition(_BETWEEN)
    if handle.plugin != NAME or not between:
        raise InvalidArgument(
            f"a handle of plugin {handle.plugin!r} with endpoint {handle.endpoint!r}",
            remedy="register the shuffle with a master of the plugin hybrid",
            shuffle=handle.spec.id,
        )
    return replace(handle, plugin="remote", endpoint=store), live
