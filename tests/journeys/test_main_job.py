"""The main job: borrow, reclaim, resume without loss, explain."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client import Client
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, Visitor, until

pytestmark = pytest.mark.timeout(300)

DOCUMENTS = ROOT / "examples" / "main-job"


@pytest.fixture(scope="module")
def berth() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="berth-main-job-") as place:
        installation = Installation(Path(place) / "home")
        installation.start("--demo")
        yield installation
        installation.clear()


def phase(client: Client, name: str) -> str:
    return client.workloads.find(name).phase


@pytest.mark.shows("RAI-16", "RAI-22", "RAI-36", "RAI-46", "RAI-67")
def test_quota_is_taken_back_from_a_borrower_and_no_work_is_lost(berth: Installation, tmp_path: Path) -> None:
    dave, grace = (sign_in(berth, name, tmp_path / name) for name in ("dave", "grace"))
    vision, ads = dave.client(), grace.client()

    # vision holds 2 GPUs of quota and borrows 6: two gangs of four fill the pool, which grew for them.
    for name in ("older", "younger"):
        dave.berth("submit", "-f", str(DOCUMENTS / f"{name}.yaml"))
        until(lambda name=name: phase(vision, name) == "running")
    until(lambda: steps_told(vision, "younger", "step") > 20)

    # ads asks for the four GPUs of its quota: the youngest gang of the borrower gives way, whole.
    grace.berth("submit", "-f", str(DOCUMENTS / "ranking.yaml"))
    until(lambda: phase(ads, "ranking") in ("running", "completed"))
    assert phase(vision, "older") == "running"
    until(lambda: phase(vision, "younger") == "pending")
    assert vision.workloads.find("younger").preemptions == 1

    same_story_everywhere(berth, dave, grace)

    # ads is done; the borrower's gang goes on from its checkpoint, not from the start.
    until(lambda: phase(ads, "ranking") == "completed")
    until(lambda: phase(vision, "younger") == "running")
    until(lambda: steps_told(vision, "younger", "begins") > 20)
    dave.berth("cancel", "older", "younger")
    until(lambda: {phase(vision, "older"), phase(vision, "younger")} == {"cancelled"})


def steps_told(client: Client, name: str, event: str) -> int:
    """The step that the present run's rank 0 told last in a line of this kind."""
    log = client.workloads.log(client.workloads.find(name).id, pod="worker-0").data.decode()
    steps = re.findall(rf"^{event} +(\d+)/", log, re.MULTILINE)
    return int(steps[-1]) if steps else 0


def same_story_everywhere(berth: Installation, dave: Terminal, grace: Terminal) -> None:
    """Who, for whom, by which rule: the same words in the CLI, REST, the web and the admin site.

    Each side knows its own by name, and the other by its project and size.
    """
    [told] = dave.json("evictions", "--workload", "younger")
    assert (told["kind"], told["workload_name"], told["preemptor_project"]) == ("reclaim", "younger", "ads")
    assert told["preemptor"] == "a 4-GPU workload of project ads"
    assert told["rule"] in " ".join(dave.berth("why", "younger").split())
    [known] = grace.json("evictions")
    assert (known["id"], known["preemptor_name"], known["rule"]) == (told["id"], "ranking", told["rule"])

    admin = Visitor(dave.address)
    admin.sign_in("admin", (berth.home / "admin-password").read_text().strip())
    for path in ("/evictions", f"/admin/scheduler/eviction/{told['id']}/change/"):
        status, page = admin.get(path)
        assert status == 200
        assert told["rule"] in re.sub(r"\s+", " ", page)
