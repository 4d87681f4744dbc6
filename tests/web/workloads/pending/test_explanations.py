"""Tests for pending reasons on the workload page."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from pools.models import NodePool
from scheduler.models import Reservation
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn


@pytest.mark.heavy
@pytest.mark.parametrize(("minutes", "shown"), [(5, True), (-5, False)])
def test_backoff_is_shown_only_until_it_ends(minutes: int, shown: bool, cast: Cast, sign_in: SignIn) -> None:
    until = timezone.now() + timedelta(minutes=minutes)
    workload = make.workload(cast.vision, "train", phase="pending", backoff_until=until)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert ("Restart delayed until <time" in page) is shown


@pytest.mark.heavy
def test_blocker_numbers_are_formatted(cast: Cast, sign_in: SignIn) -> None:
    until = int(timezone.now().timestamp()) + 3600
    numbers = {"seconds": 1, "until": until, "preemptions": 1}
    explanation = {"blockers": [{"reason": "Backoff", "message": "It was stopped once.", "numbers": numbers}]}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert re.search(r"<dt>Remaining</dt><dd>3,?[56]\d\d s</dd>", page)
    assert str(until) not in page.replace(",", "")


def test_expected_start_is_stated_once_with_its_assumptions(cast: Cast, sign_in: SignIn) -> None:
    starts = (timezone.now() + timedelta(hours=2)).isoformat()
    explanation = {
        "queue_position": 2, "pool": cast.pool.name, "expected_start": starts,
        "expected_start_reason": "if nothing new is queued ahead",
    }  # fmt: skip
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert page.count("Expected start: ") == 1
    assert page.count("Starts by itself about <time") == 1
    assert "<summary>How reliable is this?</summary>" in page
    assert "The estimate holds if nothing new is queued ahead." in page


@pytest.mark.parametrize(("run", "text"), [(0, "Start overdue since"), (1, "Restart overdue since")])
def test_expected_start_in_the_past_is_overdue(cast: Cast, sign_in: SignIn, run: int, text: str) -> None:
    explanation = {"queue_position": 1, "expected_start": make.ago(minutes=20).isoformat()}
    workload = make.workload(cast.vision, "train", phase="pending", run=run, explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert f"<strong>{text} <time" in page and "by itself about" not in page


def test_workloads_that_have_to_end_first_are_named_and_linked(cast: Cast, sign_in: SignIn) -> None:
    starts = timezone.now() + timedelta(hours=2)
    own = make.workload(cast.vision, "mine", phase="running", run=1)
    make.workload(cast.ads, "theirs", phase="running", run=1)
    ends = [["ads/theirs", (starts - timedelta(minutes=5)).isoformat()], [own.handle, starts.isoformat()]]
    explanation = {"queue_position": 2, "expected_start": starts.isoformat(), "expected_start_after": ends}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    text = re.sub(r"<time[^>]*>[^<]*</time>", "TIME", page)
    link = f'<a href="/workloads/{own.pk}">vision/mine</a>'
    assert f"by itself</strong> when a workload of another project (TIME) and {link} (TIME) end." in text
    assert "ads/theirs" in sign_in("alice").get(f"/workloads/{workload.pk}").content.decode()
    assert "ads/theirs" not in page
    pod = make.place(own, make.node(cast.pool), [0])
    make.used(pod, 0, busy_at=make.ago(minutes=66))
    text = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert f"{link} (<time" in text
    assert "</time>, idle for 1\N{NO-BREAK SPACE}h\N{NO-BREAK SPACE}6\N{NO-BREAK SPACE}min) end." in text


@pytest.mark.heavy
def test_unknown_expected_start_is_stated_with_its_reason(cast: Cast, sign_in: SignIn) -> None:
    explanation = {"queue_position": 2, "expected_start_reason": "the boot time is unknown"}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert page.count("<span>Expected start: unknown.</span>") == 1
    assert "The boot time is unknown." in page


def test_workload_that_waits_for_local_nodes_is_expected_to_start_within_seconds(
    cast: Cast, sign_in: SignIn
) -> None:
    NodePool.objects.filter(pk=cast.pool.pk).update(provider="local")
    explanation = {
        "pool": cast.pool.name, "queue_position": 1, "expected_start_reason": "their boot time is unknown",
        "blockers": [{"reason": "WaitingForScaleUp", "message": "Waits for nodes.", "numbers": {}}],
    }  # fmt: skip
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert page.count("Expected start: ") == 1
    assert "The estimate holds if nodes boot within seconds, as usual on this machine." in page


def test_reserved_workload_is_expected_to_start_when_its_nodes_have_booted(
    cast: Cast, sign_in: SignIn
) -> None:
    now = timezone.now()
    node = make.node(cast.pool, name="boots", state="booting", ready_at=now + timedelta(minutes=2))
    make.node(cast.pool, name="other", state="booting", ready_at=now + timedelta(minutes=9))
    explanation = {
        "pool": cast.pool.name, "expected_start_reason": "their boot time is unknown",
        "blockers": [{"reason": "WaitingForScaleUp", "message": "Reserved.", "numbers": {"pods": 1}}],
    }  # fmt: skip
    workload = make.workload(
        cast.vision, "train", phase="reserved", reason="WaitingForScaleUp", explanation=explanation,
        since=now - timedelta(minutes=1), pending_since=now - timedelta(minutes=6),
    )  # fmt: skip
    Reservation.objects.create(workload=workload, role="worker", index=0, node=node, gpu_milli=1000)
    status = make.queue_status(cast.vision, cast.pool, share=2, allocated=1, requested=3)
    client = sign_in("dave")
    assert "above-share" not in client.get(f"/workloads/{workload.pk}").content.decode()
    status.reserved = [2000, 0, 0]
    status.save()
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    assert "Project vision is 1 GPU above its fair share of 2 GPUs." in page
    starts = f'<time datetime="{present(node.ready_at).isoformat()}"'
    assert f"Expected start: <strong>{starts}" in page and "boot time is unknown" not in page
    assert "The estimate holds if node boots has booted by then." in page
    assert f'pending since <time datetime="{workload.pending_since.isoformat()}"' in page
    assert '<h2 id="why-title">Reserved</h2>' in page and "Waiting for scale up" not in page
    answer = client.get(f"/api/v1/workloads/{workload.pk}/explain").json()
    assert parse_datetime(answer["expected_start"]) == node.ready_at
    type(node).objects.filter(pk=node.pk).update(ready_at=now - timedelta(seconds=1))
    assert "Node boots is late." in client.get(f"/workloads/{workload.pk}").content.decode()


def test_page_shows_the_decisive_reason_before_other_reasons(cast: Cast, sign_in: SignIn) -> None:
    reasons = ("WouldExceedFairShare", "WaitingForCapacity", "NoReclaimableResources")
    blockers = [{"reason": reason, "message": f"{reason} decides.", "numbers": {}} for reason in reasons]
    workload = make.workload(cast.vision, "train", phase="pending", explanation={"blockers": blockers})
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    decisive, others = page.split('<div id="other-reasons">')
    assert "WouldExceedFairShare decides." in decisive
    assert "<h3>Waiting for capacity</h3>" in others and "WaitingForCapacity decides." in others
    assert "NoReclaimableResources" not in page


def test_header_of_each_tab_states_the_restart_delay_once(cast: Cast, sign_in: SignIn) -> None:
    until = timezone.now() + timedelta(minutes=5)
    message = f"Restart delay until {until:%Y-%m-%d %H:%M:%S} UTC, after 1 eviction."
    blockers = [{"reason": "Backoff", "message": message, "numbers": {}}]
    workload = make.workload(
        cast.vision, "train", phase="pending", reason="Backoff", message=message, backoff_until=until,
        explanation={"queue_position": 4, "pool": "local", "blockers": blockers},
    )  # fmt: skip
    client = sign_in("dave")

    def header(tab: str) -> str:
        page = client.get(f"/workloads/{workload.pk}{tab}").content.decode()
        lead = re.search(r'<p class="lead wrap">(.*?)</p>', page)
        assert lead
        return re.sub(
            r"<time[^>]*>[^<]*</time>", "TIME", re.sub(r"</?(strong|span|a)\b[^>]*>", "", lead[1])
        ).strip()

    for tab in ("/timeline", "/spec"):
        assert header(tab) == "Restart delay until TIME. Queue position 4 in pool local."
    assert header("") == "Queue position 4 in pool local.", "the card below states the reason"
    blockers = [{**blockers[0], "reason": "ProjectLimit"}]
    workload.explanation = {"queue_position": 4, "pool": "local", "blockers": blockers}
    workload.reason, workload.message = "ProjectLimit", "A limit."
    workload.save()
    expected = "Project limit: a limit. Queue position 4 in pool local. Restart delayed until TIME."
    assert header("/spec") == expected


def test_expanded_queue_order_has_a_row_per_queue(cast: Cast, sign_in: SignIn) -> None:
    make.quota(cast.vision, cast.pool, 2)  # not exceeded by GPUs, so the sentence has no number
    blockers = [{"reason": "WaitingForResources", "message": "2 GPUs are missing.", "numbers": {}}]
    ordering = ["research: within its quota", "rank 1", "vision: would exceed its quota", "rank 0"]
    ordering += ["priority 50", "submitted 2026-11-28T15:37:47Z", "vision/train"]
    explanation = {"queue_position": 1, "ordering": ordering, "blockers": blockers}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation, priority=50)
    text = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert "<dt>Department <strong>research</strong></dt><dd>within its quota, rank 1</dd>" in text
    assert (
        "<dt>Project <strong>vision</strong></dt><dd>would be over its quota with this workload</dd>" in text
    )
    assert (
        "<dt>Workload <strong>train</strong></dt><dd><span>priority 50</span>, <span>pending</span> " in text
    )
    assert text.count("Waiting for resources") == 1, "the reason stands in one place"


def test_queue_order_shows_the_gpus_of_the_project_including_the_workload(
    cast: Cast, sign_in: SignIn
) -> None:
    make.quota(cast.vision, cast.pool, 4)
    make.queue_status(cast.vision, cast.pool, share=6, allocated=0.75, requested=6.75)
    ordering = ["research: within its quota", "rank 0", "vision: would exceed its quota", "rank 0"]
    ordering += [
        "would exceed its fair share",
        "dominant share 0.125, 1.125 with this workload",
        "priority 50",
    ]
    blockers = [{"reason": "WaitingForResources", "message": "6 GPUs are missing.", "numbers": {}}]
    explanation = {"queue_position": 1, "pool": cast.pool.name, "ordering": ordering, "blockers": blockers}
    workload = make.workload(
        cast.vision, "train", phase="pending", explanation=explanation, gpu_milli_min=6000
    )
    text = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    states = "would have 6.75 GPUs with this workload, more than its quota of 4 and fair share of 6"
    values = "at 12% of its fair share, 112% with this workload"
    assert f"<dt>Project <strong>vision</strong></dt><dd>{states}, {values}</dd>" in text
    assert "dominant share" not in text and "rank 0" not in text
    assert text.count("would exceed its quota") == 0 and "vision would exceed quota" in text


def test_queue_order_mentions_a_restart_delay(cast: Cast, sign_in: SignIn) -> None:
    until = timezone.now() + timedelta(minutes=5)
    blockers = [{"reason": "Backoff", "message": "Restart delay.", "numbers": {}}]
    workload = make.workload(
        cast.vision, "train", phase="pending", reason="Backoff", backoff_until=until, priority=40,
        explanation={"queue_position": 4, "ordering": ["priority 40"], "blockers": blockers},
    )  # fmt: skip
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    order = page.partition('id="ordering-key">')[2].partition("</details>")[0]
    words = " ".join(re.sub(r"<[^>]+>", "", order).split())
    assert "last until the restart delay ends, then priority 40" in words
    assert "Workloads are last in the queue during a restart delay." in words


def test_queue_order_without_a_quota_comparison_begins_with_the_priority(cast: Cast, sign_in: SignIn) -> None:
    blockers = [{"reason": "WaitingForResources", "message": "2 GPUs are missing.", "numbers": {}}]
    explanation = {"queue_position": 1, "ordering": ["rank 1"], "blockers": blockers}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation, priority=50)
    path, client = f"/workloads/{workload.pk}", sign_in("dave")
    assert (
        "<span>Queue order:</span> <span>priority 50</span>, <span>pending"
        in client.get(path).content.decode()
    )
    type(workload).objects.filter(pk=workload.pk).update(reason="Unschedulable")
    text = client.get(path).content.decode()
    assert "Queue order" not in text, "a workload that can never start is not queued"
    assert "<strong>Can never start as specified.</strong>" in text


@pytest.mark.parametrize(
    ("phase", "warning", "dismiss"),
    [
        ("pending", "The workload leaves the queue.", "Keep workload"),
        ("running", "The pods have 30 s to stop.", "Keep running"),
    ],
)
def test_cancel_dialog_mentions_pods_only_if_there_are_any(
    phase: str, warning: str, dismiss: str, cast: Cast, sign_in: SignIn
) -> None:
    workload = make.workload(cast.vision, "train", phase=phase)
    dialog = sign_in("carol").get(f"/workloads/{workload.pk}/cancel").content.decode()
    assert warning in dialog and f">{dismiss}</a>" in dialog
