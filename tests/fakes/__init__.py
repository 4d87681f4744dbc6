"""In-memory provider and runtime that tests control. `BERTH_FAKE_POOLS` names this package."""

from berth.core.clock import Clock
from tests.fakes.provider import FakeProvider
from tests.fakes.runtime import FakeRuntime


def provider() -> FakeProvider:
    return FakeProvider()


def runtime(clock: Clock) -> FakeRuntime:
    return FakeRuntime(clock)
