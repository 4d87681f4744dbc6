"""Tests for the rate limit of requests to an API server."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pools.kubernetes.api_server.rate_limit import PAUSE_MAX, RateLimit
from pools.runtimes.base import RuntimeFailure
from tests.contracts.kubernetes.stage import POOL, fake_kubernetes_stage
from tests.contracts.pods import running
from tests.fakes.kubernetes.store import Rejection


@dataclass
class Time:
    now: float = 100.0
    delays: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.delays.append(round(seconds, 3))
        self.now += seconds

    def pace(self) -> RateLimit:
        return RateLimit(per_second=10, burst=3, clock=lambda: self.now, sleep=self.sleep)


def test_requests_over_the_burst_limit_are_spread_over_time() -> None:
    time = Time()
    pace = time.pace()
    time.now += 60  # an idle time permits no more than the burst
    for _ in range(6):
        pace.wait()
    assert time.delays == [0.1, 0.1, 0.1]


def test_requested_pause_delays_every_request_by_at_most_the_maximum() -> None:
    time = Time()
    pace = time.pace()
    pace.pause(2)
    pace.wait()
    pace.pause(3600)
    pace.wait()
    assert time.delays == [2.0, PAUSE_MAX]


def test_retry_after_header_of_an_overloaded_server_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(RateLimit, "pause", lambda pace, seconds: pauses.append(seconds))
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        assert stage.access[POOL].cluster.mirror.pods() == []
        busy = Rejection(429, "TooManyRequests", "the server is busy", {"Retry-After": "7"})
        stage.cluster.rejections["create", "pods"] = busy
        with pytest.raises(RuntimeFailure, match="the server is busy"):
            stage.runtime.start(stage.long("p-1"))
        assert pauses == [7.0]
        stage.cluster.rejections.clear()
        stage.runtime.start(stage.long("p-1"))
        running(stage.runtime, "p-1")
