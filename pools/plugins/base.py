"""Plugin interface: a plugin has a name and up to six hooks."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from pools.plugins.facts import ClientPool, Cluster, InstanceInfo
from pools.plugins.image import Image

Function = Callable[..., Any]
HookContext = AbstractContextManager[object]


@dataclass(frozen=True, slots=True)
class Operation:
    """Idempotent shell script that runs on each node after the environment's packages are installed.

    It runs under `sh -eu`, with the pool's variables and secrets set and the pool's `python` first in PATH.
    """

    script: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Plugin:
    """Plugin: a name and optional hooks.

    `transform` adds packages and settings to the environment's `Image`. `bootstrap` returns operations for
    each node after the installation. `decorate` wraps the submitted function. `around_app` stays open while
    the worker's main process runs, `around_process` from an executor process's first call until the process
    ends, and `around_client` while the client's session is open.
    """

    name: str
    transform: Callable[[Image, Cluster], Image] | None = None
    bootstrap: Callable[[Cluster], tuple[Operation, ...]] | None = None
    decorate: Callable[[Function], Function] | None = None
    around_app: Callable[[InstanceInfo], HookContext] | None = None
    around_process: Callable[[InstanceInfo], HookContext] | None = None
    around_client: Callable[[ClientPool, Cluster], HookContext] | None = None

    @classmethod
    def create(cls, name: str) -> "Plugin":
        return cls(name)

    def with_transform(self, hook: Callable[[Image, Cluster], Image]) -> "Plugin":
        return replace(self, transform=hook)

    def with_bootstrap(self, hook: Callable[[Cluster], tuple[Operation, ...]]) -> "Plugin":
        return replace(self, bootstrap=hook)

    def with_decorate(self, hook: Callable[[Function], Function]) -> "Plugin":
        return replace(self, decorate=hook)

    def with_around_app(self, hook: Callable[[InstanceInfo], HookContext]) -> "Plugin":
        return replace(self, around_app=hook)

    def with_around_process(self, hook: Callable[[InstanceInfo], HookContext]) -> "Plugin":
        return replace(self, around_process=hook)

    def with_around_client(self, hook: Callable[[ClientPool, Cluster], HookContext]) -> "Plugin":
        return replace(self, around_client=hook)
