"""Membership of a worker in the session's Ray cluster."""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from berth.worker.own_ray import START_SECONDS, NoRay, OwnRay, seat_of

log = logging.getLogger("berth.worker")

THERE = "BERTH_SESSION_RAY"  # Ray's directory on this node, set once Ray runs
# Ray errors that report the loss of a node or process, rather than an error in a task's function.
_LOST = {
    "ActorDiedError", "ActorUnavailableError", "LocalRayletDiedError", "NodeDiedError", "ObjectLostError",
    "RaySystemError", "RpcError", "WorkerCrashedError",
}  # fmt: skip


class SessionRay:
    """Ray on one node of a session, between `join` and `leave`. Both do nothing on pools without Ray."""

    def __init__(self) -> None:
        self._own: OwnRay | None = None

    @property
    def is_lost(self) -> bool:
        """True if Ray has ended since this worker started it."""
        return self._own is not None and not self._own.lives

    def join(self, goes_on: Callable[[], bool], environ: Mapping[str, str] = os.environ) -> None:
        """Return once this node has joined, or immediately on pools without Ray. Raises NoRay."""
        if environ.get("BERTH_RUNTIME") != "ray":
            return
        if find_spec("ray") is None:
            log.warning("Ray is not installed in the Python that runs functions, so they cannot use it")
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
    """Initialize Ray in the process that runs functions, which also receives the output of tasks."""
    if THERE in os.environ:
        import ray

        # By default, Ray would connect to the head's node if several nodes share a machine.
        address, directory = os.environ["BERTH_NODE_ADDRESS"], os.environ[THERE]
        here: dict[str, Any] = {"_node_ip_address": address, "_temp_dir": directory}
        ray.init(log_to_driver=True, logging_level=logging.WARNING, **here)


def disconnect() -> None:
    if THERE in os.environ:
        import ray

        with suppress(Exception):  # Ray may already have ended
            ray.shutdown()


def was_lost(error: BaseException) -> bool:
    """Return whether a Ray node or process was lost, in which case the call is retried."""
    kinds = type(error).__mro__
    return any(kind.__module__ == "ray.exceptions" and kind.__name__ in _LOST for kind in kinds)
