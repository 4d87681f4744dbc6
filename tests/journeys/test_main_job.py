"""Test the main use case: borrow, reclaim, resume without lost work, and explain."""

import re
from pathlib import Path

import pytest

from berth.client import Client
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, Visitor, until

pytestmark = pytest.mark.timeout(900)

DOCUMENTS = ROOT / "examples" / "main-job"
# The first checkpoint. A rank on a busy machine may be killed before it has saved another one on SIGTERM.
SAVED_STEP = 5


def read_document(name: str) -> str:
    """Return an example with two ranks of two GPUs, which start faster than four ranks of one GPU."""
    text = (DOCUMENTS / f"{name}.yaml").read_text()
    return text.replace("replicas: 4, gpu: 1", "replicas: 2, gpu: 2")


def phase(client: Client, name: str) -> str:
    return client.workloads.find(name).phase


def until_running(client: Client, name: str) -> None:
    until(lambda: phase(client, name) == "running")


@pytest.mark.shows("RAI-16", "RAI-22", "RAI-36", "RAI-46", "RAI-67")
def test_borrowed_gpus_are_reclaimed_and_no_work_is_lost(
    shared_berth: Installation, dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    dave, grace = dave_on_shared_berth, sign_in(shared_berth, "grace", tmp_path / "grace")
    vision, ads = dave.client(), grace.client()

    # vision has a quota of 2 GPUs and borrows 6. Two gangs of four GPUs fill the pool, which scales up.
    for name in ("older", "younger"):
        often = f'"0.4", --checkpoint-every, "{SAVED_STEP}", --report-every, "1"'
        dave.berth("submit", "-f", "-", stdin=read_document(name).replace('"0.4"', often))
        until_running(vision, name)
    until(lambda: last_step(vision, "younger", "step") > SAVED_STEP)

    # ads requests the four GPUs of its quota. The borrower's newest gang is reclaimed as a whole.
    endless = read_document("ranking").replace('"600"', '"1000000"')
    grace.berth("submit", "-f", "-", stdin=endless)
    until_running(ads, "ranking")
    assert phase(vision, "older") == "running"
    until(lambda: phase(vision, "younger") == "pending")
    assert vision.workloads.find("younger").preemptions == 1

    assert_eviction_is_explained_everywhere(shared_berth, dave, grace)

    # The workload in ads ends. The borrower's gang resumes from its checkpoint, not from the start.
    ads.workloads.cancel(ads.workloads.find("ranking").id)
    until_running(vision, "younger")
    until(
        lambda: last_step(vision, "younger", "begins") >= SAVED_STEP,
        details=lambda: read_log_text(vision, "younger"),
    )
    for name in ("older", "younger"):
        vision.workloads.cancel(vision.workloads.find(name).id)
    until(lambda: {phase(vision, "older"), phase(vision, "younger")} == {"cancelled"})


def last_step(client: Client, name: str, event: str) -> int:
    """Return the step of the last line with this event in the log of rank 0, or 0."""
    steps = re.findall(rf"^{event} +(\d+)/", read_log_text(client, name), re.MULTILINE)
    return int(steps[-1]) if steps else 0


def read_log_text(client: Client, name: str) -> str:
    return client.workloads.log(client.workloads.find(name).id, pod="worker-0").data.decode()


def assert_eviction_is_explained_everywhere(berth: Installation, dave: Terminal, grace: Terminal) -> None:
    """Assert that the CLI, REST, the pages and the admin site show the same eviction rule.

    Each project sees its own workload by name, and the other workload by project and size.
    """
    [eviction] = dave.json("evictions", "--workload", "younger")
    assert (eviction["kind"], eviction["workload_name"], eviction["preemptor_project"]) == (
        "reclaim",
        "younger",
        "ads",
    )
    assert eviction["preemptor"] == "a 4-GPU workload in project ads"
    assert eviction["rule"] in " ".join(dave.berth("why", "younger").split())
    [seen_by_ads] = grace.json("evictions")
    assert (seen_by_ads["id"], seen_by_ads["preemptor_name"], seen_by_ads["rule"]) == (
        eviction["id"],
        "ranking",
        eviction["rule"],
    )

    admin = Visitor(dave.address)
    admin.sign_in("admin", (berth.home / "admin-password").read_text().strip())
    for path in ("/evictions", f"/admin/scheduler/eviction/{eviction['id']}/change/"):
        status, page = admin.get(path)
        assert status == 200
        assert eviction["rule"] in re.sub(r"\s+", " ", page)
