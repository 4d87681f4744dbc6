"""Tests that the command line and the workload page show each workload phase."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from typer.testing import CliRunner

from berth.cli.main import app
from pools.runtimes import capabilities
from pools.runtimes.capabilities import Capabilities
from projects.models import Workload
from projects.services.people import tokens
from tests.cast import make_cast
from tests.scheduler.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)
ROLES = [{"name": "leader", "replicas": 1, "gpu": 1}, {"name": "worker", "replicas": 2, "gpu": 1}]


class MemberView:
    """A member's view of a workload on the command line and in the browser."""

    def __init__(self, stage: Stage, url: str, home: Path) -> None:
        person = stage.cast.alice
        token = tokens.issue(actor=person, name="test", scopes=["read"], expires_at=None)[1]
        self.environment = {"BERTH_CONFIG": str(home / "config.toml"), "BERTH_URL": url, "BERTH_TOKEN": token}
        self.browser = Client()
        self.browser.force_login(person.user)

    def description(self, workload: Workload) -> str:
        return self.run("describe", workload.handle)

    def run(self, *words: str) -> str:
        result = CliRunner().invoke(app, words, env={**self.environment, "COLUMNS": "120"})
        assert result.exit_code == 0, result.output
        return result.stdout

    def page(self, workload: Workload) -> str:
        answer = self.browser.get(f"/workloads/{workload.pk}")
        assert answer.status_code == 200
        return answer.content.decode().lower()


@pytest.mark.shows("RAI-19")
def test_status_shows_the_current_phases_of_workload_roles_and_pods(live_server: Any, tmp_path: Path) -> None:
    stage = Stage(make_cast())
    stage.quota(stage.cast.research, 4)
    stage.quota(stage.cast.vision, 4)
    view = MemberView(stage, live_server.url, tmp_path)
    workload = stage.submit(roles=ROLES)
    stage.tick()
    assert "pending" in view.description(workload)
    assert "pending" in view.page(workload)
    stage.node(0)
    stage.node(1)
    for phase in ("starting", "running"):
        stage.tick()
        workload.refresh_from_db()
        assert workload.phase == phase
        for shown in (view.description(workload), view.page(workload)):
            assert phase in shown
            assert all(pod in shown for pod in ("leader-0", "worker-0", "worker-1"))
    assert "3 of 3 running" in view.description(workload)
    stage.finish(workload)
    stage.tick()
    assert "completed" in view.description(workload)
    assert "completed" in view.page(workload)


def test_status_shows_the_image_and_pull_progress(
    live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(capabilities.CAPABILITIES, "fake", Capabilities(runs_images=True))
    stage = Stage(make_cast())
    stage.quota(stage.cast.research, 4)
    stage.quota(stage.cast.vision, 4)
    stage.node(0)
    stage.runtime.runs_immediately = False
    view = MemberView(stage, live_server.url, tmp_path)
    workload = stage.submit(roles=ROLES[:1], image="ghcr.io/org/train:1")
    stage.tick(2, seconds=1)
    for shown in (view.description(workload), view.page(workload)):
        assert "ghcr.io/org/train:1" in shown
        assert "looking up the digest" in shown.lower()
        assert "sha256:" not in shown
    stage.registries.digests["ghcr.io/org/train:1"] = f"sha256:{'5e' * 32}"
    stage.tick(2, seconds=1)
    (pod,) = stage.pods(workload)
    stage.runtime.report_progress(str(pod.pk), "pulling layer 3 of 7, 26 MB")
    stage.tick(seconds=1)
    for shown in (view.description(workload), view.page(workload)):
        assert "pod leader-0: pulling layer 3 of 7, 26 mb." in shown.lower()
        assert f"sha256:{'5e' * 32}" in shown
    images = json.loads(view.run("describe", workload.handle, "-o", "json"))["images"]
    assert [(image["run"], image["image"], image["digest"]) for image in images] == [
        (1, "ghcr.io/org/train:1", f"sha256:{'5e' * 32}")
    ]


def test_restarts_are_shown_by_failure_kind(live_server: Any, tmp_path: Path) -> None:
    stage = Stage(make_cast())
    stage.quota(stage.cast.research, 4)
    stage.quota(stage.cast.vision, 4)
    stage.node(0)
    stage.node(1)
    view = MemberView(stage, live_server.url, tmp_path)
    workload = stage.submit(roles=ROLES[:1], retry=[{"on": [75], "max": 3, "other_node": True}])
    stage.tick(2)
    node = stage.pods(workload)[0].node.name
    stage.finish(workload, exit_code=75)
    stage.tick(2)
    for shown in (view.description(workload), view.page(workload)):
        assert "1 after exit code 75" in shown
        assert "avoided nodes" in shown.lower()
    described = json.loads(view.run("describe", workload.handle, "-o", "json"))
    assert (described["retries"], described["avoided_nodes"]) == ({"75": 1}, [node])
    timeline = view.browser.get(f"/workloads/{workload.pk}/timeline").content.decode()
    assert "Restarting after a failure" in timeline
    assert "Restarting the gang on another node: restart 1 of at most 3." in timeline


def test_why_command_and_page_show_which_workload_quota_is_held_for(live_server: Any, tmp_path: Path) -> None:
    stage = Stage(make_cast())
    stage.cast.pool.reservation_after = 0
    stage.cast.pool.save()
    stage.quota(stage.cast.research, 4)
    stage.quota(stage.cast.vision, 4)
    stage.node(0)
    stage.node(1)
    view = MemberView(stage, live_server.url, tmp_path)
    stage.submit("first", roles=ROLES[:1], preemptible=False)
    stage.tick(2)
    four = [{"name": "worker", "replicas": 4, "gpu": 1}]
    stage.submit("large", roles=four, priority=200, preemptible=False)
    late = stage.submit("late", roles=ROLES[:1], preemptible=False)
    stage.tick(2)
    held = "4 GPUs held for vision/large, which has a higher priority"
    assert stage.phase(late) == "pending"
    assert held in " ".join(view.run("why", late.handle).split())
    assert held.lower() in re.sub(r"</?a\b[^>]*>", "", view.page(late))
