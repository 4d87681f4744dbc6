"""Tests for a workload's timeline, from its submission to its end."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from projects.models import Event, Workload
from scheduler.models import Eviction
from tests import factories as make
from tests.cast import Cast
from tests.fakes.clock import FixedClock
from tests.scheduler.stage import Stage
from tests.web.conftest import SignIn


def titles(client: Client, workload: Workload) -> list[str]:
    return [
        entry.title for entry in client.get(f"/workloads/{workload.pk}/timeline").context["timeline"].entries
    ]


def record_event(workload: Workload, kind: str, message: str, minutes: float, **data: object) -> None:
    Event.objects.create(
        kind=kind, project_id=workload.project_id, workload_id=workload.pk, subject=workload.name,
        message=message, actor="scheduler", at=make.ago(minutes=minutes), data=data,
    )  # fmt: skip


def preemption_history(cast: Cast) -> tuple[Workload, Eviction]:
    ours = make.workload(cast.vision, "ours", phase="running", run=2, preemptions=1)
    theirs = make.workload(cast.vision, "theirs", phase="running", run=1)
    record_event(ours, "submitted", "Submitted by dave.", 100)
    record_event(ours, "starting", "Placed.", 90, reason="Placed")
    record_event(ours, "running", "All pods run.", 89, reason="AllPodsRun")
    record_event(ours, "stopping", "Preempted for vision/theirs: lower priority", 60, reason="Preempted")
    record_event(ours, "pending", "It waits again.", 59.9, reason="Preempted")
    record_event(ours, "starting", "Placed.", 30, reason="Placed")
    record_event(ours, "running", "All pods run.", 29, reason="AllPodsRun")
    eviction = make.eviction(ours, theirs, cast.pool, kind="preempt", at=make.ago(minutes=60))
    return ours, eviction


def test_timeline_shows_starts_preemptions_and_durations(cast: Cast, sign_in: SignIn) -> None:
    ours, eviction = preemption_history(cast)
    client = sign_in("erin")
    assert titles(client, ours) == [
        "Running",
        "Starting",
        "Pending",
        "Preempted",
        "Running",
        "Starting",
        "Submitted",
    ]
    answer = client.get(f"/workloads/{ours.pk}/timeline")
    lasted = [
        (entry.lasted_verb, round(entry.lasted / timedelta(minutes=1)))
        for entry in answer.context["timeline"].entries
        if entry.lasted is not None
    ]
    assert lasted == [("pending for", 30), ("stopping for", 0), ("ran for", 29), ("pending for", 10)]
    text = answer.content.decode()
    number = f'<span class="visually-hidden"> {eviction.pk}</span>'
    assert f'href="/evictions/{eviction.pk}">Show eviction{number}</a>' in text
    party = f'<a href="/workloads/{eviction.preemptor_id}">vision/theirs</a>'
    assert f'<div class="soft">By {party}: {eviction.rule}</div>' in text
    assert "Preempted by" not in text and "Preempted for" not in text, "the sentence is not repeated"
    overview = client.get(f"/workloads/{ours.pk}").content.decode()
    assert "<span>by vision/theirs</span>" in overview


def test_workload_that_runs_without_a_start_event_shows_how_long_it_was_pending(
    cast: Cast, sign_in: SignIn
) -> None:
    ours = make.workload(cast.vision, "ours", phase="running")
    record_event(ours, "submitted", "Submitted by dave.", 90)
    record_event(ours, "running", "All pods run.", 30)
    running, _ = sign_in("erin").get(f"/workloads/{ours.pk}/timeline").context["timeline"].entries
    assert running.lasted is not None and (running.title, running.lasted_verb) == ("Running", "pending for")
    assert round(running.lasted / timedelta(minutes=1)) == 60


def test_restart_delay_is_on_the_timeline_rather_than_in_its_header(cast: Cast, sign_in: SignIn) -> None:
    message = "Restart delay until 2026-11-29 18:49:00 UTC, after 1 eviction."
    ours = make.workload(
        cast.vision, "ours", reason="Backoff", message=message, explained_at=make.ago(seconds=5),
        pending_reasons=make.reasons(("Backoff", 4)), backoff_until=make.ago(minutes=-1),
    )  # fmt: skip
    text = sign_in("erin").get(f"/workloads/{ours.pk}/timeline").content.decode()
    assert "Restart delay until <time" in text and "Restart delay for" not in text
    assert re.search(r"<strong>Now pending</strong> <span class=\"faint\">for 4 min.* so far", text)
    lead = text.partition('class="lead wrap"')[2].partition("</p>")[0]
    assert "Restart delay" not in lead, "the list states the reason"


@pytest.mark.heavy
def test_pod_warning_does_not_end_the_running_period_in_the_timeline(cast: Cast, sign_in: SignIn) -> None:
    ours = make.workload(cast.vision, "ours", phase="running")
    record_event(ours, "running", "All pods run.", 29, reason="AllPodsRun")
    record_event(ours, "pod_warning", "Pod worker-0: 1 process was killed at the memory limit.", 9)
    warning, _ = sign_in("erin").get(f"/workloads/{ours.pk}/timeline").context["timeline"].entries
    assert (warning.title, warning.tone, warning.lasted) == ("Pod warning", "warn", None)


def test_timeline_of_the_preemptor_links_to_the_eviction(cast: Cast, sign_in: SignIn) -> None:
    _, eviction = preemption_history(cast)
    theirs = Workload.objects.get(name="theirs")
    record_event(theirs, "submitted", "Submitted by carol.", 70)
    assert titles(sign_in("dave"), theirs) == ["Evicted another workload", "Submitted"]
    assert (
        f'href="/evictions/{eviction.pk}">Show eviction'
        in sign_in("dave").get(f"/workloads/{theirs.pk}/timeline").content.decode()
    )


def test_preemptor_in_an_invisible_project_is_not_named(cast: Cast, sign_in: SignIn) -> None:
    ours, strange = make.workload(cast.vision, "ours"), make.workload(cast.ads, "secret-name", gpus=4)
    record_event(ours, "submitted", "Submitted by dave.", 100)
    make.eviction(ours, strange, cast.pool, at=make.ago(minutes=10))
    text = sign_in("erin").get(f"/workloads/{ours.pk}/timeline").content.decode()
    assert "secret-name" not in text
    assert "Reclaimed" in text


@pytest.mark.heavy
def test_timeline_of_a_pending_workload_shows_its_reason(cast: Cast, sign_in: SignIn) -> None:
    pending = make.workload(
        cast.vision, "waits", reason="WouldExceedFairShare", message="vision holds its fair share.",
        explained_at=make.ago(seconds=5),
    )  # fmt: skip
    record_event(pending, "submitted", "Submitted by dave.", 10)
    page = sign_in("dave").get(f"/workloads/{pending.pk}/timeline")
    (entry,) = page.context["timeline"].entries
    assert (entry.title, entry.message, entry.current_reason) == (
        "Submitted", "Submitted by dave.", "Would exceed fair share: vision holds its fair share.",
    )  # fmt: skip
    assert "pending for 10 min so far" in page.content.decode()


def test_events_show_the_time_of_day_with_seconds(cast: Cast, sign_in: SignIn) -> None:
    ended = make.workload(cast.vision, "ended", phase="failed", ended_at=make.ago(), run=1)
    record_event(ended, "submitted", "Submitted by dave.", 10)
    (event,) = Event.objects.all()
    for tab in ("", "/timeline"):
        text = sign_in("dave").get(f"/workloads/{ended.pk}{tab}").content.decode()
        assert f'data-style="event" title="{event.at:%Y-%m-%d %H:%M:%S} UTC"' in text


def test_repeated_message_of_consecutive_events_is_shown_once(cast: Cast, sign_in: SignIn) -> None:
    failed = make.workload(cast.vision, "failed", phase="failed", ended_at=make.ago(), run=1)
    record_event(failed, "running", "All pods run.", 10)
    for kind in ("stopping", "failed"):
        record_event(failed, kind, "Pod worker-0 ended with exit code 3.", 1)
    entries = sign_in("dave").get(f"/workloads/{failed.pk}/timeline").context["timeline"].entries
    assert [(entry.title, bool(entry.message)) for entry in entries] == [
        ("Failed", True), ("Stopping", False), ("Running", True),
    ]  # fmt: skip


def pending_reasons(client: Client, workload: Workload) -> list[tuple[str, list[str]]]:
    entries = client.get(f"/workloads/{workload.pk}/timeline").context["timeline"].entries
    return [
        (
            entry.title,
            [f"{reason} {round(took / timedelta(minutes=1))}" for reason, took in entry.reasons.summary],
        )
        for entry in entries
        if entry.reasons is not None
    ]


@pytest.mark.heavy
def test_timeline_shows_the_sequence_of_pending_reasons(cast: Cast, sign_in: SignIn) -> None:
    ours, _ = preemption_history(cast)
    reasons = make.reasons(("WouldExceedFairShare", 100), ("Fragmented", 93, 90), ("ProjectLimit", 59, 30))
    Workload.objects.filter(pk=ours.pk).update(pending_reasons=reasons)
    client = sign_in("erin")
    assert pending_reasons(client, ours) == [
        ("Starting", ["ProjectLimit 29"]), ("Starting", ["WouldExceedFairShare 7", "Fragmented 3"]),
    ]  # fmt: skip
    text = client.get(f"/workloads/{ours.pk}/timeline").content.decode()
    assert "Would exceed fair share for 7 min, then Fragmented for 3 min" in text


@pytest.mark.heavy
def test_pending_workload_shows_the_pending_time_per_reason(cast: Cast, sign_in: SignIn) -> None:
    reasons = make.reasons(("Fragmented", 40, 30), ("WouldExceedFairShare", 9), ("Fragmented", 3))
    pending = make.workload(
        cast.vision, "waits", reason="Fragmented", explained_at=make.ago(seconds=5),
        since=make.ago(minutes=10), pending_reasons=reasons,
    )  # fmt: skip
    record_event(pending, "submitted", "Submitted by dave.", 50)
    assert pending_reasons(sign_in("dave"), pending) == [
        ("Submitted", ["WouldExceedFairShare 6", "Fragmented 3"])
    ]


@pytest.mark.heavy
def test_many_changes_of_the_pending_reason_are_summarized(cast: Cast, sign_in: SignIn) -> None:
    flips = [("Fragmented" if n % 3 else "WouldExceedFairShare", 60 - n * 5) for n in range(9)]
    pending = make.workload(
        cast.vision, "waits", reason="Fragmented", explained_at=make.ago(seconds=5),
        since=make.ago(minutes=61), pending_reasons=make.reasons(*flips),
    )  # fmt: skip
    client = sign_in("dave")
    assert pending_reasons(client, pending) == [("Now pending", ["Fragmented 45", "WouldExceedFairShare 15"])]
    assert "Timeline (9 reasons)" in client.get(f"/workloads/{pending.pk}/timeline").content.decode()


@pytest.mark.heavy
def test_timeline_is_built_from_scheduler_events(transactional_db: None, sign_in: SignIn, cast: Cast) -> None:
    stage = Stage(cast, clock=FixedClock(timezone.now()))
    stage.node(0)
    stage.quota(cast.research, 2)
    stage.quota(cast.vision, 2)
    low = stage.submit("low", priority=10)
    stage.tick(2)
    high = stage.submit("high", priority=60)
    for _ in range(6):
        stage.tick(1, seconds=1)
    assert stage.phase(high) == "running"
    stage.finish(high)
    for _ in range(200):
        stage.tick(1, seconds=30)
        if stage.phase(low) == "running":
            break
    stage.finish(low)
    stage.tick(2)
    assert titles(sign_in("dave"), low) == [
        "Completed",
        "Running",
        "Starting",
        "Pending",
        "Preempted",
        "Running",
        "Starting",
        "Submitted",
    ]
    assert "Evicted another workload" in titles(sign_in("dave"), high)


def test_timeline_shows_periods_expected_events_and_the_last_checkpoint(cast: Cast, sign_in: SignIn) -> None:
    start = timezone.now() + timedelta(minutes=40)
    ours = make.workload(
        cast.vision, "ours", run=1, preemptions=1, reason="Backoff", explained_at=make.ago(seconds=5),
        since=make.ago(minutes=10), last_checkpoint_at=make.ago(minutes=20),
        backoff_until=make.ago(minutes=-5), explanation={"expected_start": start.isoformat()},
    )  # fmt: skip
    record_event(ours, "submitted", "Submitted by dave.", 60)
    record_event(ours, "running", "All pods run.", 50)
    record_event(ours, "stopping", "Preempted for vision/theirs: lower priority", 11, reason="Preempted")
    record_event(ours, "pending", "Requeued after 1 eviction.", 10, reason="Preempted")
    theirs = make.workload(cast.vision, "theirs", phase="running")
    make.eviction(ours, theirs, cast.pool, at=make.ago(minutes=11), lost_gpu_seconds=9 * 60)
    client = sign_in("dave")
    assert titles(client, ours) == [
        "Expected start", "Restart delay ends", "Pending", "Preempted", "Last checkpoint", "Running",
        "Submitted",
    ]  # fmt: skip
    page = client.get(f"/workloads/{ours.pk}/timeline")
    timeline = page.context["timeline"]
    bar = timeline.periods
    assert [(each.state, each.period.is_expected, each.period.is_delay) for each in bar.segments] == [
        ("pending", False, False), ("running", False, False), ("lost", False, False),
        ("stopping", False, False), ("pending", False, True), ("pending", True, True),
        ("pending", True, False),
    ]  # fmt: skip
    assert [each.width for each in bar.segments] == pytest.approx([10, 39, 9, 1, 10, 5, 35], abs=0.2), (
        "the scale is linear"
    )
    assert bar.states == ("pending", "running", "stopping")
    including = "including 10 min of restart delay"
    assert timeline.summary == f"1 run, 1 eviction, 39 min running, 20 min pending, {including}"
    assert [(mark.text, round(mark.x), mark.y) for mark in bar.marks] == [
        ("last checkpoint", 40, 0), ("evicted", 49, 16), ("now", 60, 32),
    ]  # fmt: skip
    assert bar.evictions == (bar.segments[3].x,) and bar.checkpoint == bar.segments[2].x
    assert bar.now == bar.segments[5].x
    assert re.search(r'class="period-end">Expected start about <time', page.content.decode())
    keys = {entry.title: entry.period for entry in timeline.entries if entry.period is not None}
    assert keys == {
        "Submitted": 0,
        "Running": 1,
        "Preempted": 2,
        "Pending": 3,
        "Restart delay ends": 4,
        "Expected start": 5,
    }
    assert 'class="estimate">about <time' in page.content.decode()
    assert page.content.decode().count('<li class="future') == 2
    overview = client.get(f"/workloads/{ours.pk}").content.decode()
    assert "Restart delay ends" not in overview and "Last checkpoint</strong>" not in overview


def test_edit_that_resets_the_queue_time_is_marked_on_the_bar(cast: Cast, sign_in: SignIn) -> None:
    start = timezone.now() + timedelta(minutes=40)
    ours = make.workload(cast.vision, "ours", explanation={"expected_start": start.isoformat()})
    record_event(ours, "submitted", "Submitted by dave.", 60)
    for minutes, increases in ((30, ["gpu"]), (20, [])):
        record_event(ours, "edited", "Edited by dave.", minutes, increases=increases)
    bar = sign_in("dave").get(f"/workloads/{ours.pk}/timeline").context["timeline"].periods
    assert [(mark.text, round(mark.x)) for mark in bar.marks] == [("queue time reset", 30), ("now", 60)]
    assert round(bar.edit) == 30


def test_last_checkpoint_line_does_not_cross_the_now_label(cast: Cast, sign_in: SignIn) -> None:
    ours = make.workload(
        cast.vision, "ours", phase="running", run=1, max_runtime=100 * 60, started_at=make.ago(minutes=60),
        last_checkpoint_at=make.ago(minutes=8),
    )  # fmt: skip
    record_event(ours, "submitted", "Submitted by dave.", 70)
    record_event(ours, "running", "All pods run.", 60)
    page = sign_in("dave").get(f"/workloads/{ours.pk}/timeline")
    bar = page.context["timeline"].periods
    assert [(mark.text, round(mark.x), mark.y, mark.is_left) for mark in bar.marks] == [
        ("now", 64, 0, True), ("last checkpoint", 56, 16, True),
    ]  # fmt: skip
    assert re.search(r'aria-label="Pending\n\d\d:\d\d:\d\d to \d\d:\d\d:\d\d\n10 min"', page.content.decode())
