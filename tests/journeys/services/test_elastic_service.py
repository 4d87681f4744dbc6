"""Tests for a service that scales with its load without failing a request."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from projects.engine.replicas.config import IN_CONDITIONS, OUT_CONDITIONS
from projects.serving.routers import SGLangRouter
from tests.journeys.services.service_story import AUTOSCALER, SERVICE, Story, run_load, running_service
from tests.serving.routers import HTTP_CLIENT

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
FIELDS = {
    "request_id", "action", "status", "triggered_at", "completed_at", "from_engines", "to_engines", "delta",
    "reason", "triggered_conditions", "metrics_snapshot", "error_message",
}  # fmt: skip


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    """Run the load once, and return its measurements for all tests."""
    with (
        tempfile.TemporaryDirectory(prefix="berth-service-") as place,
        running_service(Path(place) / "home") as story,
    ):
        run_load(story, quiet=5, busy=8)
        yield story


@pytest.mark.shows("RLX-01", "RLX-09")
def test_no_request_fails_while_engines_are_added_and_removed(story: Story) -> None:
    assert story.load.failed == []
    assert len(story.load.requests) > 100


@pytest.mark.shows("RLX-62", "RLX-68", "RLX-76", "RLX-86")
def test_engine_count_follows_the_load(story: Story) -> None:
    counts = [moment.active for moment in story.moments]
    assert (counts[0], max(counts), counts[-1]) == (1, AUTOSCALER["max_engines"], 1)
    queued = [moment.waiting or 0 for moment in story.moments]
    assert max(queued) > 6
    assert queued[-1] == 0


@pytest.mark.shows("RLX-97", "RLX-98", "RLX-99")
def test_scale_history_records_each_scaling_action_and_its_outcome(story: Story) -> None:
    history = story.history()
    assert all(set(record) == FIELDS for record in history)
    ends = {(record["action"], record["status"]) for record in history}
    assert ends == {("scale_out", "ACTIVE"), ("scale_in", "COMPLETED")}
    assert sum(record["delta"] for record in history if record["action"] == "scale_out") == 3
    assert [record["delta"] for record in history if record["action"] == "scale_in"] == [1, 1, 1]
    begun = [record["triggered_at"] for record in history]
    assert begun == sorted(begun, reverse=True)
    assert history[0]["triggered_conditions"] == ["token_usage_low", "no_queue", "throughput_stable"]
    assert history[-1]["reason"] == "Conditions met: queue_backlog"


@pytest.mark.shows("RLX-10", "RLX-56")
def test_router_lists_only_the_initial_engine_after_scale_in(story: Story) -> None:
    engines = [engine for model in story.get("engines")["models"].values() for engine in model["engines"]]
    (remaining,) = [engine for engine in engines if engine["status"] not in {"REMOVED", "FAILED"}]
    assert remaining["origin"] == "initial"
    (worker,) = SGLangRouter(HTTP_CLIENT, story.load.address).workers()
    assert (worker.address, worker.healthy) == (remaining["url"], True)


@pytest.mark.shows("RLX-93", "RLX-95", "RLX-100")
def test_berth_top_shows_engines_autoscaler_conditions_and_scale_history(story: Story) -> None:
    settings = story.client.settings
    env = {**os.environ, "BERTH_URL": settings.address, "BERTH_TOKEN": settings.token}
    command = [sys.executable, "-m", "berth.cli.main", "top", "--service", SERVICE, "--once"]
    shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=True).stdout
    assert "autoscaler on, running" in shown
    assert "engines    1, allowed 1 to 4" in shown
    assert "engines reporting 1, token usage 0" in shown
    for condition in (*OUT_CONDITIONS, *IN_CONDITIONS):
        assert f"\n{condition}  " in shown
    assert "scale_in  2 to 1  COMPLETED" in shown
