"""A worker's membership in the session's Ray cluster."""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from berth.worker.own_ray import START_SECONDS, OwnRay, RayUnavailable, read_position

log = logging.getLogger("berth.worker")

# Environment variable that contains Ray's directory on this node. Set once Ray is running.
RAY_DIRECTORY_VARIABLE = "BERTH_SESSION_RAY"
# Ray errors that report the loss of a node or process, rather than an error in a task's function.
_LOSS_ERRORS = {
    "ActorDiedError", "ActorUnavailableError", "LocalRayletDiedError", "NodeDiedError", "ObjectLostError",
    "RaySystemError", "RpcError", "WorkerCrashedError",
}  # fmt: skip


class SessionRay:
    """Ray on one node of a session. The methods do nothing on pools without Ray."""

    def __init__(self) -> None:
        self._ray: OwnRay | None = None

    @property
    def is_lost(self) -> bool:
        """Whether Ray has exited since the worker started it."""
        return self._ray is not None and not self._ray.is_running

    def join(self, should_continue: Callable[[], bool], environ: Mapping[str, str] = os.environ) -> None:
        """Join the session's Ray cluster, if the pool uses Ray and it is installed on the node.

        Raises RayUnavailable if Ray does not start.
        """
        if environ.get("BERTH_RUNTIME") != "ray":
            return
        if find_spec("ray") is None:
            log.warning(
                "Ray is not installed in the functions' Python environment, so functions cannot use Ray"
            )
            return
        ray = OwnRay(read_position(environ, cpus=max(1, int(float(environ.get("BERTH_CPUS", "1"))))))
        try:
            ray.start(START_SECONDS, should_continue)
        except RayUnavailable as missing:
            raise RayUnavailable(f"Ray could not be started for the session: {missing}") from None
        self._ray = ray
        os.environ.update({**ray.environment, RAY_DIRECTORY_VARIABLE: ray.directory})

    def leave(self) -> None:
        ray, self._ray = self._ray, None
        if ray is not None:
            ray.end()


def connect() -> None:
    """Initialize Ray in the process that runs functions. That process then also receives task output."""
    if RAY_DIRECTORY_VARIABLE in os.environ:
        import ray

        # If several nodes share a machine, Ray would otherwise connect to the head node.
        address, directory = os.environ["BERTH_NODE_ADDRESS"], os.environ[RAY_DIRECTORY_VARIABLE]
        node_options: dict[str, Any] = {"_node_ip_address": address, "_temp_dir": directory}
        ray.init(log_to_driver=True, logging_level=logging.WARNING, **node_options)


def disconnect() -> None:
    if RAY_DIRECTORY_VARIABLE in os.environ:
        import ray

        with suppress(Exception):  # Ray may already have exited
            ray.shutdown()


def is_ray_system_failure(error: BaseException) -> bool:
    """Return whether a Ray node or process was lost. If so, the call is retried."""
    kinds = type(error).__mro__
    return any(kind.__module__ == "ray.exceptions" and kind.__name__ in _LOSS_ERRORS for kind in kinds)
