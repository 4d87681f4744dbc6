"""Test that the times of pods are correct if a node's clock differs from Berth's."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from pools.runtimes.base import PodReport, PodState
from pools.runtimes.ray.agents import NodeAgent
from pools.runtimes.ray.node.agent import Agent, Handler
from tests.support.ports import free_port

HOUR, TOLERANCE = timedelta(hours=1), timedelta(seconds=9)


class SkewedPods:
    """Pods of a node whose clock is ahead. All of them started a minute ago and have just ended."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def get_reports(self, pod_ids: list[str]) -> dict[str, PodReport]:
        now = self.now()
        report = PodReport(PodState.EXITED, started_at=now - timedelta(minutes=1), ended_at=now, exit_code=0)
        return dict.fromkeys(pod_ids, report)

    def checkpointed_at(self, workspace: str) -> datetime:
        return self.now()


@pytest.mark.heavy
@pytest.mark.parametrize("ahead", [HOUR, -HOUR, timedelta()])
def test_node_times_are_converted_to_berths_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ahead: timedelta
) -> None:
    pods: Any = SkewedPods(ahead)
    format_date = Handler.date_time_string
    monkeypatch.setattr(
        Handler, "date_time_string", lambda handler: format_date(handler, pods.now().timestamp())
    )
    server = Agent(("127.0.0.1", free_port()), pods, "secret", lambda: "")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with httpx.Client(trust_env=False) as client:
            agent = NodeAgent(client, f"http://127.0.0.1:{server.server_port}", "secret")
            before = datetime.now(UTC)
            report, saved = agent.get_reports(["p-1"])["p-1"], agent.checkpointed_at("w-1")
            after = datetime.now(UTC)
    finally:
        server.shutdown()
        server.server_close()
    assert report.started_at is not None
    assert report.ended_at is not None
    assert saved is not None
    assert report.ended_at - report.started_at == timedelta(minutes=1)
    for at in (report.ended_at, saved):
        assert before - TOLERANCE <= at <= after + TOLERANCE
