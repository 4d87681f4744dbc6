"""Tests for `berth schedule` with a server."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from projects.models import Schedule, Workload
from projects.services.workloads.templates import set_template
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

ROOT = Path(__file__).resolve().parents[3]
TEXT = "command: python train.py\nroles: [{gpu: 1}]\n"
pytestmark = pytest.mark.django_db(transaction=True)


def test_schedule_is_created_edited_run_and_deleted(berth: Berth, cast: Cast, tmp_path: Path) -> None:
    token = {"BERTH_TOKEN": token_of(cast.dave), "BERTH_PROJECT": "vision"}
    file = tmp_path / "train.yaml"
    file.write_text(TEXT)

    def run(*arguments: str) -> str:
        done = berth("schedule", *arguments, **token)
        assert done.returncode == 0, done.stderr
        return done.stdout

    created = run("create", "nightly", "--cron", "0 3 * * 1-5", "--time-zone", "Europe/Berlin", str(file))
    assert created.startswith("vision/nightly created; next run at ")
    assert "vision/nightly" in run("list")
    assert run("edit", "nightly", "--overlap", "replace").startswith("vision/nightly changed; next run at ")
    assert (Schedule.objects.get().overlap, Schedule.objects.get().text) == ("replace", TEXT)
    assert run("pause", "vision/nightly") == "vision/nightly paused\n"
    assert "Paused by dave." in run("show", "nightly")
    assert run("resume", "nightly").startswith("vision/nightly resumed; next run at ")
    assert run("run", "nightly") == "vision/nightly submitted\n"
    shown = run("show", "nightly")
    assert "Recent runs" in shown
    assert "submitted" in shown
    stored: dict[str, Any] = json.loads(run("show", "nightly", "-o", "json"))
    assert (stored["time_zone"], len(stored["next_runs"])) == ("Europe/Berlin", 5)
    assert run("delete", "nightly") == "vision/nightly deleted\n"
    assert Workload.objects.get().name == "nightly"


def test_schedule_is_created_from_a_template(berth: Berth, cast: Cast) -> None:
    token = {"BERTH_TOKEN": token_of(cast.dave)}
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    create = ("schedule", "create", "vision/weekly", "--cron", "@weekly")
    assert berth(*create, "--template", "train", **token).returncode == 0
    assert Schedule.objects.get().template == "train"
    rejected = berth(
        "schedule",
        "create",
        "vision/other",
        "--cron",
        "0 3 30 2 *",
        "--time-zone",
        "Berlin",
        "--template",
        "x",
        **token,
    )
    assert rejected.returncode != 0
    assert "cron: never fires" in rejected.stderr
    assert "Did you mean `Europe/Berlin`?" in rejected.stderr
    both = berth(*create, "--template", "train", "train.yaml", **token)
    assert "specify either FILE or --template" in both.stderr


def test_documented_example_runs_unchanged(
    berth: Berth, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(TEXT)
    guide = (ROOT / "docs" / "researchers" / "many-runs.md").read_text()
    example = guide.partition("## Run at fixed times")[2].split("```")[1]
    token = {"BERTH_TOKEN": token_of(cast.dave), "BERTH_PROJECT": "vision"}
    for line in example.strip().splitlines():
        done = berth(*shlex.split(line, comments=True)[1:], **token)
        assert done.returncode == 0, (line, done.stderr)
    schedule = Schedule.objects.get(name="nightly")
    assert (schedule.cron, schedule.time_zone, schedule.overlap) == ("0 3 * * 1-5", "Europe/Berlin", "skip")
    assert Workload.objects.filter(name="nightly").exists()
