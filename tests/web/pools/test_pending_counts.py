"""Tests that all pages count pending workloads in the same way."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from berth.server.web.charts.bars import WIDTH, quota_bar
from projects.models import Workload, WorkloadArray
from projects.web.workloads.listing.filters import StateCount
from scheduler.reports.pool_diagnosis import diagnose_pool
from scheduler.reports.queues.pending_gpus import pending_gpus_by_project
from scheduler.reports.queues.queue_list import queue_length
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture
def pending(cast: Cast) -> None:
    """Create a pending workload, an unschedulable workload, and an array of one queued and 20 held tasks."""
    make.workload(cast.vision, "alone", gpus=2, reason="OverQuota")
    make.workload(cast.vision, "never", gpus=1, reason="Unschedulable")
    array = WorkloadArray.objects.create(
        project=cast.vision,
        name="sweep",
        submitted_by=cast.dave.user,
        spec={},
        gpu_milli_min=1000,
        task_count=21,
        max_running=1,
    )
    for index in range(21):
        make.workload(
            cast.vision,
            f"sweep-{index}",
            array=array,
            array_index=index,
            held=index > 0,
            reason="ArrayParallelism" if index else "OverQuota",
        )


def figure(client: Client, title: str) -> tuple[str, str]:
    text = client.get("/").content.decode()
    match = re.search(rf'>{title}</div><div class="value">(.*?)</div><div class="note">(.*?)</div>', text)
    assert match
    return match[1], re.sub(r"<[^>]+>", "", match[2])


@pytest.mark.heavy
def test_all_pages_show_the_same_number_of_pending_workloads(
    sign_in: SignIn, cast: Cast, pending: None
) -> None:
    make.workload(cast.vision, "earlier", phase="completed", first_started_at=make.ago(hours=1))
    client = sign_in("alice")
    assert figure(client, "Pending") == ("3", "workloads")
    states = client.get("/workloads?state=pending").context["states"]
    assert StateCount("pending", "Pending", 3) in states
    messages = [finding.finding for finding in diagnose_pool(cast.pool, timezone.now())]
    assert any(message.startswith("3 workloads are pending: ") for message in messages)
    Workload.objects.filter(array_index=0).update(phase="running")
    assert figure(client, "Running")[0] == "1" and figure(client, "Pending") == ("2", "plus parts of 1 array")
    reasons = client.get("/").context["reasons"]
    assert sum(reason.count for reason in reasons) == 3, "the pending ones and the array with pending tasks"


@pytest.mark.heavy
def test_queue_page_counts_the_pending_workloads_outside_the_queue(
    sign_in: SignIn, cast: Cast, pending: None
) -> None:
    length = queue_length(cast.pool)
    assert (length.workloads, length.held_tasks, length.unschedulable) == (2, 20, 1)
    text = sign_in("alice").get("/queue").content.decode()
    assert "2 workloads, " in text
    assert "20 array tasks wait for earlier tasks." in text
    link = re.search(r'<a href="(/workloads[^"]*)">1 pending workload can never start as specified</a>', text)
    assert link
    page = sign_in("alice").get(link[1].replace("&amp;", "&"))
    assert [row.name for row in page.context["slice"].rows] == ["never"]


@pytest.mark.heavy
def test_held_array_tasks_do_not_count_as_pending_demand(cast: Cast, pending: None) -> None:
    assert pending_gpus_by_project([cast.pool]) == {cast.vision.pk: 4000}


def test_long_queue_does_not_shorten_the_allocated_segment_of_a_bar() -> None:
    bar = quota_bar(allocated=8, quota=10, share=None, requested=82, scale=12, label="")
    assert [(part.kind, part.x, part.width) for part in bar.parts] == [
        ("used", 0, 667),
        ("requested", 667, 293),
        ("requested", WIDTH - 20, 20),
    ]


@pytest.mark.heavy
def test_queue_counts_an_array_as_one_workload(sign_in: SignIn, cast: Cast, pending: None) -> None:
    Workload.objects.filter(array__isnull=False, array_index=1).update(held=False, reason="OverQuota")
    for index in (0, 1):
        explanation = {"pool": cast.pool.name, "queue_position": index + 1}
        Workload.objects.filter(array__isnull=False, array_index=index).update(explanation=explanation)
    page = sign_in("alice").get("/queue")
    assert queue_length(cast.pool).workloads == 2
    assert page.context["queued"] == page.context["all_queued"] == 2
    names = re.findall(r'id="q-[^>]*>([^<]+)</a>', page.content.decode())
    assert sorted(names) == ["alone", "never", "sweep"], "one row each"
    assert page.context["reasons"] == [("OverQuota", 2)]
    [(heading, _)] = page.context["groups"]
    assert heading is None or heading.workloads == 2
    assert "2 workloads, " in page.content.decode()
