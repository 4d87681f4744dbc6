"""Capabilities of each runtime, and the providers that it works with."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from berth.core.errors import Invalid
from berth.core.problems import Problem

KUBERNETES = "kubernetes"  # name shared by a provider and a runtime
REMOTE_PROVIDERS = ("aws", "static", "kubernetes", "ssh", "slurm")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features that a runtime supports.

    `runs_images`: pods run in the container image of their workload. `enforces_limits`: nodes enforce CPU and
    memory limits, or do not start pods that have limits. `requires_images`: every workload needs an image.
    `shares_gpus`: pods can use part of a GPU. `pods_have_addresses`: each running pod has its own network
    address. `receives_code`: pods can start with the code of their workload. `sends_notices`: pods can
    receive a signal some time before SIGTERM.
    """

    runs_images: bool = False
    enforces_limits: bool = False
    requires_images: bool = False
    shares_gpus: bool = True
    pods_have_addresses: bool = False
    receives_code: bool = False
    sends_notices: bool = False


# Capabilities by `NodePool.runtime`. Nodes report whether they can actually run images and enforce limits.
CAPABILITIES: Mapping[str, Capabilities] = {
    "local": Capabilities(
        runs_images=True, enforces_limits=True, receives_code=True, sends_notices=True
    ),
    "ray": Capabilities(
        runs_images=True, enforces_limits=True, receives_code=True, sends_notices=True
    ),
    "kubernetes": Capabilities(
        runs_images=True, enforces_limits=True, requires_images=True, shares_gpus=False,
        pods_have_addresses=True, receives_code=True,
    ),
    "fake": Capabilities(receives_code=True, sends_notices=True),
}  # fmt: skip


def runtime_capabilities(runtime: str) -> Capabilities:
    return CAPABILITIES[runtime]


def default_runtime(provider: str) -> str:
    """Return the default runtime for pools of the provider."""
    if provider == KUBERNETES:
        return KUBERNETES
    return "ray" if provider in REMOTE_PROVIDERS else "local"


def check_runtime(provider: str, runtime: str) -> None:
    """Raise Invalid if the runtime is not installed or does not work with the provider."""
    if (runtime == KUBERNETES) != (provider == KUBERNETES):
        message = "does not work with this provider: the kubernetes provider and runtime need each other"
        allowed = KUBERNETES if provider == KUBERNETES else "local or ray"
        raise Invalid([Problem("runtime", message, runtime, allowed)])
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
