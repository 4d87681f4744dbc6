"""A worker's part in the session's Ray cluster."""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from berth.worker.own_ray import START_SECONDS, NoRay, OwnRay, seat_of

log = logging.getLogger("berth.worker")

THERE = "BERTH_SESSION_RAY"  # the directory of this node's part; set once it is there
# What Ray raises because something it ran on is gone. An error of a task's own function is none of these.
_LOST = {
    "ActorDiedError", "ActorUnavailableError", "LocalRayletDiedError", "NodeDiedError", "ObjectLostError",
    "RaySystemError", "RpcError", "WorkerCrashedError",
}  # fmt: skip


class SessionRay:
    """Of one node: `join` and `leave` belong together. On other pools both do nothing."""

    def __init__(self) -> None:
        self._own: OwnRay | None = None

    @property
    def is_lost(self) -> bool:
        """It was there, and it is not any more."""
        return self._own is not None and not self._own.lives

    def join(self, goes_on: Callable[[], bool], environ: Mapping[str, str] = os.environ) -> None:
        """Returns once this node is part of it, or at once where there is to be none. Raises NoRay."""
        if environ.get("BERTH_RUNTIME") != "ray":
            return
        if find_spec("ray") is None:
            log.warning("Ray is not installed where functions run: they find none")
            return
        own = OwnRay(seat_of(environ, cpus=max(1, int(float(environ.get("BERTH_CPUS", "1"))))))
        try:
            own.start(START_SECONDS, goes_on)
        except NoRay as missing:
            raise NoRay(f"the session's Ray could not be started: {missing}") from None
        self._own = own
        os.environ.update({**own.environment, THERE: own.directory})

    def leave(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.end()


def connect() -> None:
    """The process that runs functions calls it: they find Ray initialised. Tasks print where it prints."""
    if THERE in os.environ:
        import ray

        # Where nodes are on one machine, it would take the head's part.
        address, directory = os.environ["BERTH_NODE_ADDRESS"], os.environ[THERE]
        here: dict[str, Any] = {"_node_ip_address": address, "_temp_dir": directory}
        ray.init(log_to_driver=True, logging_level=logging.WARNING, **here)


def disconnect() -> None:
    if THERE in os.environ:
        import ray

        with suppress(Exception):  # it may have ended before us
            ray.shutdown()


def was_lost(error: BaseException) -> bool:
    """Did Ray lose what the function stood on? Then its call is for another try."""
    kinds = type(error).__mro__
    return any(kind.__module__ == "ray.exceptions" and kind.__name__ in _LOST for kind in kinds)
