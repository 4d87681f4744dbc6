"""Here we choose, in one place, what the parts are handed: a clock, sources of machines, ways to run."""
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from django.conf import settings

from berth.core.clock import Clock, SystemClock
from pools.models import NodePool
from pools.providers.base import Provider
from pools.providers.fake import FakeProvider
from pools.providers.local import LocalProvider
from pools.providers.measured import Machine, this_machine
from pools.runtimes.base import Runtime
from pools.runtimes.fake import FakeRuntime
from pools.runtimes.local import LocalRuntime

T = TypeVar("T")


class NotWired(LookupError):
    """A pool names a provider or a runtime that this installation has not."""


@dataclass(frozen=True)
class Wiring:
    clock: Clock
    providers: Mapping[str, Provider]
    runtimes: Mapping[str, Runtime]

    def provider_of(self, pool: NodePool) -> Provider:
        return _found(self.providers, pool.provider, f"provider of the pool {pool.name}")

    def runtime_of(self, pool: NodePool) -> Runtime:
        return _found(self.runtimes, pool.runtime, f"runtime of the pool {pool.name}")


@cache
def wired() -> Wiring:
    """That of this process. What lies under BERTH_HOME is shared by all of them."""
    home, clock = Path(settings.BERTH_HOME), SystemClock()
    return Wiring(
        clock=clock,
        providers={
            NodePool.Provider.LOCAL.value: LocalProvider(home / "nodes", machine()),
            NodePool.Provider.FAKE.value: FakeProvider(),
        },
        runtimes={
            NodePool.Runtime.LOCAL.value: LocalRuntime(home / "run"),
            NodePool.Runtime.FAKE.value: FakeRuntime(clock),
        },
    )


def machine() -> Machine:
    """Real GPUs where there are any; else as many as are declared, in name only."""
    found = this_machine()
    return found if found.devices else this_machine(settings.BERTH_DECLARED_GPUS)


def _found(wired: Mapping[str, T], name: str, what: str) -> T:
    try:
        return wired[name]
    except KeyError:
        raise NotWired(f"{name!r}, the {what}, is not part of this installation") from None
