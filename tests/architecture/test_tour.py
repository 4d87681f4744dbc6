"""Tests that the tour lists existing files in the order in which a submission passes through them."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest
from django.test import Client

from projects.services.people import tokens
from tests.cast import make_cast
from tests.scheduler.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
TOUR = (ROOT / "docs" / "tour.md").read_text()
STEP = re.compile(r"^\| \d+ \| .* \| `([^`]+)` \| `(\w+)` \|$", re.MULTILINE)
TOP_FOLDERS = ("platform/", "scheduler/", "projects/", "pools/", "templates/", "tests/", "examples/")


@pytest.mark.parametrize("document", ["docs/tour.md", "CONTRIBUTING.md"])
def test_files_named_in_the_tour_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = {name for name in re.findall(r"`([\w./-]+)`", text) if name.startswith(TOP_FOLDERS)}
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_names_in_the_tour_are_defined_in_the_listed_file() -> None:
    beside = re.findall(r"`([\w./-]+\.py)` `(\w+)`", TOUR)
    assert beside
    for file, name in beside:
        assert re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b", (ROOT / file).read_text(), re.MULTILINE), (
            file,
            name,
        )


@pytest.fixture
def stage(transactional_db: None) -> Stage:
    stage = Stage(make_cast())
    stage.node()
    stage.quota(stage.cast.research, 4)
    stage.quota(stage.cast.vision, 4)
    return stage


def test_submission_passes_through_the_tour_files_in_order(stage: Stage) -> None:
    _, secret = tokens.issue(actor=stage.cast.dave, name="tour", scopes=["read", "write"], expires_at=None)
    document = {"name": "train", "project": "vision", "command": "true", "roles": [{"gpu": 1}]}
    calls: list[tuple[str, str]] = []
    with record_calls(calls):
        response = Client().post(
            "/api/v1/workloads", document, "application/json", headers={"Authorization": f"Bearer {secret}"}
        )
        stage.tick()
    assert response.status_code == 201, response.content
    steps = STEP.findall(TOUR)
    assert len(steps) > 10
    assert [step for step in calls if step in set(steps)] == steps


@contextmanager
def record_calls(calls: list[tuple[str, str]]) -> Iterator[None]:
    root, called = f"{ROOT}/", set[CodeType]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code not in called:
            called.add(code)
            call = (code.co_filename.removeprefix(root), code.co_name)
            if code.co_filename.startswith(root) and call not in calls:
                calls.append(call)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
