"""Capabilities of the runtimes, and the providers that each runtime supports."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from berth.core.errors import Invalid
from berth.core.problems import Problem

REMOTE_PROVIDERS = ("aws", "static")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features of a runtime.

    `runs_images`: pods run in the container image of their workload. `enforces_limits`: nodes enforce the
    CPU and memory limits of roles, or refuse to start a pod that has limits.
    """

    runs_images: bool = False
    enforces_limits: bool = False


# Keyed by `NodePool.runtime`. Nodes report whether they have what images and limits need.
CAPABILITIES: Mapping[str, Capabilities] = {
    "local": Capabilities(runs_images=True, enforces_limits=True),
    "ray": Capabilities(runs_images=True, enforces_limits=True),
    "fake": Capabilities(),
}  # fmt: skip


def runtime_capabilities(runtime: str) -> Capabilities:
    return CAPABILITIES[runtime]


def check_runtime(provider: str, runtime: str) -> None:
    """Raise Invalid if the runtime does not work with the provider or is not installed."""
    if runtime == "local" and provider in REMOTE_PROVIDERS:
        message = "runs pods on the scheduler's machine, but nodes of this provider are other machines"
        raise Invalid([Problem("runtime", message, runtime, "ray")])
    if runtime != "ray":
        return
    if provider == "fake":
        raise Invalid([Problem("runtime", "does not work with the provider fake", runtime, "fake")])
    if provider == "local" and not (find_spec("ray") and find_spec("aiohttp")):
        message = "is not installed on this machine. Run `pip install 'berth-platform[ray]'`"
        raise Invalid([Problem("runtime", message, runtime, "local")])
