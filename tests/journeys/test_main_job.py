"""Here we show the main job: one project borrows, another takes its quota back, nothing is lost, all is told."""
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, Visitor, until

pytestmark = [pytest.mark.xdist_group("up"), pytest.mark.timeout(300)]

TRAIN = [
    "--gpu", "1", "--cpu", "0.5", "--memory", "256", "--replicas", "4", "--grace", "20s", "--",
    "python", "-m", "berth.examples.train_numpy",
]


@pytest.fixture(scope="module")
def berth() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="berth-main-job-") as place:
        installation = Installation(Path(place) / "home")
        installation.start("--demo")
        yield installation
        installation.clear()


def workload(terminal: Terminal, name: str) -> dict[str, Any]:
    described: dict[str, Any] = terminal.json("describe", name)
    return described


def phase(terminal: Terminal, name: str) -> str:
    return str(workload(terminal, name)["phase"])


@pytest.mark.shows("RAI-16", "RAI-22", "RAI-36", "RAI-46", "RAI-67")
def test_quota_is_taken_back_from_a_borrower_and_no_work_is_lost(berth: Installation, tmp_path: Path) -> None:
    dave, grace = (sign_in(berth, name, tmp_path / name) for name in ("dave", "grace"))

    # vision holds 2 GPUs of quota and borrows 6: two gangs of four fill the pool, which grew for them.
    for name in ("older", "younger"):
        dave.berth("submit", "-n", name, "-p", "vision", *TRAIN, "--steps", "1000000", "--pause", "0.05")
        until(lambda name=name: phase(dave, name) == "running")
    until(lambda: steps_seen(dave, "younger") > 20)

    # ads asks for the four GPUs of its quota: the youngest gang of the borrower gives way, whole.
    grace.berth("submit", "-n", "ranking", "-p", "ads", *TRAIN, "--steps", "150", "--pause", "0.02")
    until(lambda: phase(grace, "ranking") in ("running", "completed"))
    assert phase(dave, "older") == "running"
    younger = until(lambda: waiting(dave, "younger"))
    assert younger["preemptions"] == 1

    same_story_everywhere(berth, dave, grace)

    # ads is done; the borrower's gang goes on from its checkpoint, not from the start.
    until(lambda: phase(grace, "ranking") == "completed")
    until(lambda: phase(dave, "younger") == "running")
    resumed = until(lambda: re.search(r"[Rr]esum\w+ .*?(\d+)", dave.berth("logs", "younger", "--pod", "worker-0")))
    assert int(resumed.group(1)) > 0
    dave.berth("cancel", "older", "younger")
    until(lambda: {phase(dave, "older"), phase(dave, "younger")} == {"cancelled"})


def waiting(terminal: Terminal, name: str) -> dict[str, Any] | None:
    found = workload(terminal, name)
    return found if found["phase"] == "pending" else None


def steps_seen(terminal: Terminal, name: str) -> int:
    steps = re.findall(r"step\D+(\d+)", terminal.berth("logs", name, "--pod", "worker-0"))
    return int(steps[-1]) if steps else 0


def same_story_everywhere(berth: Installation, dave: Terminal, grace: Terminal) -> None:
    """Who, for whom, by which rule: the same words and numbers in the CLI, REST, the web and the admin site."""
    [told] = dave.json("evictions", "--workload", "younger")
    assert (told["kind"], told["beneficiary"]["name"]) == ("reclaim", "ranking")
    assert told["rule"] in " ".join(dave.berth("why", "younger").split())
    assert grace.json("evictions") == dave.json("evictions")  # both sides may see it

    admin = Visitor(dave.address)
    admin.sign_in("admin", (berth.home / "admin-password").read_text().strip())
    for path in ("/evictions", f"/admin/scheduler/eviction/{told['id']}/change/"):
        status, page = admin.get(path)
        assert status == 200
        assert told["rule"] in re.sub(r"\s+", " ", page)
