"""Check that a pool's runtime works with its provider."""

from importlib.util import find_spec

from berth.core.errors import Invalid
from berth.core.problems import Problem

ELSEWHERE = ("aws", "static")  # providers whose nodes are machines of their own


def check_runtime(provider: str, runtime: str) -> None:
    if runtime == "local" and provider in ELSEWHERE:
        message = "runs pods on the scheduler's machine, but this pool's nodes are elsewhere"
        raise Invalid([Problem("runtime", message, runtime, "ray")])
    if runtime != "ray":
        return
    if provider == "fake":
        raise Invalid([Problem("runtime", "does not run on machines that are played", runtime, "fake")])
    if provider == "local" and not (find_spec("ray") and find_spec("aiohttp")):
        message = "is not installed on this machine: pip install 'berth[ray]'"
        raise Invalid([Problem("runtime", message, runtime, "local")])
