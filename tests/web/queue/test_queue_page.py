"""Tests for the queue page."""

import csv
import io
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.models import Phase, Project, Workload, WorkloadArray
from projects.services import arrays
from scheduler.engine.board.ledger import QueueKey
from scheduler.models import Reservation
from scheduler.reports.queues.pending_reason import pending_reason
from scheduler.reports.queues.queue_ordering import describe_queue_states
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn, streamed

ADDRESS = "/queue?pool=local"


def queue(project: Project, name: str, reason: str) -> None:
    explanation = {"pool": "local", "queue_position": 1, "ordering": [f"key of {name}"]}
    make.workload(project, name, phase="pending", reason=reason, explanation=explanation)


def names(client: Client, query: str = "") -> list[str]:
    context: Any = client.get(f"{ADDRESS}{query}").context
    return sorted(row.name for row, *_ in context["rows"])


def test_queue_is_filtered_by_reason_and_project(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "limited", "ProjectLimit")
    queue(cast.vision, "large", "WaitingForCapacity")
    queue(cast.speech, "other", "ProjectLimit")
    client = sign_in("alice")
    assert names(client) == ["large", "limited", "other"]
    assert names(client, "&reason=ProjectLimit") == ["limited", "other"]
    assert names(client, "&reason=ProjectLimit&project=speech") == ["other"]
    context: Any = client.get(f"{ADDRESS}&reason=ProjectLimit").context
    assert context["reasons"] == [("ProjectLimit", 2), ("WaitingForCapacity", 1)]
    assert context["projects"] == ["speech", "vision"]
    assert "No pending workloads match" in client.get(f"{ADDRESS}&reason=Backoff").content.decode()


def test_counts_include_only_visible_workloads(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "mine", "ProjectLimit")
    queue(cast.ads, "theirs", "ProjectLimit")
    page = sign_in("dave").get(ADDRESS)
    assert page.context["reasons"] == [("ProjectLimit", 1)]
    summary = "2 workloads (1 visible to you), 2 GPUs requested, 0 free."
    assert summary in page.content.decode()


@pytest.mark.heavy
def test_queues_of_all_pools_are_listed_with_their_counts(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    queue(cast.vision, "here", "ProjectLimit")
    elsewhere = {"pool": "spare", "queue_position": 1, "expected_start_reason": "the boot time is unknown"}
    make.workload(cast.vision, "there", reason="WaitingForScaleUp", explanation=elsewhere)
    client = sign_in("alice")
    text = client.get("/queue").content.decode()
    assert "2 workloads, 2 GPUs requested." in text and "Each array" not in text
    assert "The boot time is unknown." in text
    assert [name for name, count in client.get("/queue").context["pools"] if count == 1] == ["local", "spare"]
    assert names(client) == ["here"]
    assert "No scheduler is running." in text
    make.create_scheduler_lease()
    assert "No scheduler is running." not in client.get("/queue").content.decode()


@pytest.mark.heavy
def test_queues_are_grouped_by_pool_in_queue_order(cast: Cast, sign_in: SignIn) -> None:
    for pool in ("local-2", "spare"):
        make.pool(pool)
    for pool, position in (("spare", 1), ("local", 2), ("local-2", 1), ("local", 10), ("local", 1)):
        explanation = {"pool": pool, "queue_position": position}
        make.workload(cast.vision, f"{pool}-{position}", reason="WaitingForCapacity", explanation=explanation)
    make.workload(cast.vision, "local-new", pools=["local"])
    context: Any = sign_in("alice").get("/queue").context
    expected = ["local-1", "local-2", "local-10", "local-new", "local-2-1", "spare-1"]
    assert [row.name for row, *_ in context["rows"]] == expected
    context = sign_in("alice").get("/queue?sort=-pool").context
    assert [row.name for row, *_ in context["rows"]] == expected[::-1]


def test_reason_has_a_label_and_a_detail(cast: Cast) -> None:
    row = make.workload(
        cast.vision, "w", reason="WouldExceedFairShare", message="vision would have 12 of 11 GPUs."
    )
    assert str(pending_reason(row)) == "Would exceed fair share: vision would have 12 of 11 GPUs"
    row.reason, row.message = "WaitingForCapacity", "Needs 6 GPUs, 1.25 are free."
    assert pending_reason(row) == ("Waiting for capacity", "needs 6 GPUs, 1.25 are free")
    row.message = "Needs 6 GPUs. Needs more."
    assert pending_reason(row).detail == "needs 6 GPUs. Needs more."
    row.reason, row.message = "", ""
    assert str(pending_reason(row)) == "Not evaluated yet"


def test_restart_delay_shows_when_it_ends_and_why_the_start_failed(cast: Cast) -> None:
    row = make.workload(
        cast.vision, "w", reason="Backoff", backoff_until=datetime(2100, 11, 28, 12, 31, tzinfo=UTC)
    )
    row.message = "Restart delay until 2100-11-28 12:31:00 UTC, after 1 eviction."
    assert str(pending_reason(row)) == "Restart delay until 2100-11-28 12:31:00 UTC"
    row.message = "Restart delay until 2100-11-28 12:31:00 UTC, after pod worker-0 could not be started: x."
    assert pending_reason(row).detail.endswith("12:31:00 UTC; pod worker-0 could not be started: x")
    row.backoff_until, row.message = None, "Cannot start yet: its previous pods have not stopped."
    assert pending_reason(row) == ("Restart delay", "cannot start yet: its previous pods have not stopped")


def test_queue_escapes_the_message_of_a_workload_once(cast: Cast, sign_in: SignIn) -> None:
    explanation = {"pool": "local", "queue_position": 1}
    message = "The cluster's quota `a & b` allows <4> GPUs."
    make.workload(cast.vision, "w", reason="ClusterQuota", message=message, explanation=explanation)
    page = sign_in("alice").get("/queue?pool=local").content.decode()
    detail = "the cluster&#x27;s quota `a &amp; b` allows &lt;4&gt; GPUs"
    assert f'<span class="sub">{detail}</span>' in page


def test_every_pool_has_a_heading_with_its_queue_and_free_gpus(cast: Cast, sign_in: SignIn) -> None:
    spare = make.pool("spare")
    make.node(spare, gpus=4)
    queue(cast.vision, "here", "ProjectLimit")
    queue(cast.ads, "hidden", "ProjectLimit")
    for position in (1, 2):
        explanation = {"pool": "spare", "queue_position": position}
        make.workload(
            cast.vision, f"there-{position}", replicas=2, reason="WaitingForCapacity", explanation=explanation
        )
    client = sign_in("dave")
    assert "2 workloads, 4 GPUs requested, 4 free." in client.get("/queue?pool=spare").content.decode()
    groups = client.get("/queue").context["groups"]
    assert [
        (heading.name, heading.workloads, heading.gpu_milli, heading.free, [row.name for row, *_ in entries])
        for heading, entries in groups
    ] == [
        ("local", 2, 2000, 0, ["here"]),
        ("spare", 2, 4000, 4000, ["there-1", "there-2"]),
    ]
    assert '<th scope="rowgroup"' in client.get("/queue").content.decode()
    by_name = client.get("/queue?sort=name")
    assert by_name.context["groups"][0][0] is None
    text = by_name.content.decode()
    assert text.count('<span class="sub pool"><span class="visually-hidden">in pool </span>spare</span>') == 2
    assert headers(text) == headers(client.get("/queue").content.decode())
    assert '<span class="sub pool">' not in client.get("/queue").content.decode()
    csv = streamed(client.get("/queue?format=csv")).decode()
    assert "Pool" in csv.splitlines()[0].split(",")


def headers(page: str) -> list[str]:
    """Return the titles of the columns."""
    head = page.partition("<thead>")[2].partition("</thead>")[0]
    cells = re.findall(r"<th[^>]*>(.*?)</th>", head, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", cell).strip(" \n\N{UPWARDS ARROW}") for cell in cells]


@pytest.mark.heavy
def test_headings_are_repeated_on_later_pages(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    for position in range(60):
        explanation = {"pool": "local", "queue_position": position + 1}
        make.workload(cast.vision, f"w{position:02}", reason="ProjectLimit", explanation=explanation)
    client = sign_in("dave")
    first = client.get("/queue").context
    with CaptureQueriesContext(connection) as statements:
        second = client.get(f"/queue?cursor={first['listing'].next}").context
    assert [len(entries) for _, entries in (*first["groups"], *second["groups"])] == [50, 10]
    assert second["groups"][0][0].workloads == 60
    assert len(statements) <= 25
    make.workload(cast.vision, "huge", reason="Unschedulable", gpus=1)
    assert client.get("/queue").context["impossible"] == []
    last = client.get(f"/queue?cursor={first['listing'].next}").context
    assert [row.name for row in last["impossible"]] == ["huge"]


@pytest.mark.heavy
def test_workloads_that_can_never_start_are_the_last_group(cast: Cast, sign_in: SignIn) -> None:
    message = "Each replica requests 64 GPUs; the largest node in the pool has 2 GPUs."
    values: Any = {"reason": "Unschedulable", "message": message, "gpus": 1}
    make.workload(cast.vision, "huge", **values)
    make.workload(cast.ads, "hidden", **values)
    client = sign_in("dave")
    page = client.get(ADDRESS).content.decode()
    assert "No workloads in the queue" not in page and "Can never start" in page
    array = submit_array(cast, "big", 4)
    Workload.objects.filter(array=array).update(reason="Unschedulable", message=message)
    queue(cast.vision, "waits", "ProjectLimit")
    for address in (ADDRESS, "/queue", "/queue?sort=name"):
        page = client.get(address).content.decode()
        queued, _, never = page.partition("Can never start")
        assert ">waits</a>" in queued and ">waits</a>" not in never
        assert re.findall(r'id="[aq]-[^>]*>([^<]+)</a>', never) == ["big", "huge"]
        assert "4 tasks" in never and never.count(message) == 2
    assert "Can never start" not in client.get(f"{ADDRESS}&reason=ProjectLimit").content.decode()
    assert ">huge</a>" not in client.get(f"{ADDRESS}&search=big").content.decode()


def test_workload_that_can_never_start_links_to_its_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    make.node(cast.pool, gpus=2)
    document = training("huge", project="vision", roles=[{"name": "worker", "gpu": 64}])
    huge = make.workload(
        cast.vision,
        "huge",
        gpus=64,
        reason="Unschedulable",
        by=cast.dave.user,
        spec=document,
        pools=["local"],
    )
    link = f"/workloads/{huge.pk}/review-change"
    dave = sign_in("dave")
    assert link in dave.get(ADDRESS).content.decode()
    assert link not in sign_in("erin").get(ADDRESS).content.decode()
    address = unquote(dave.get(link).headers["Location"])
    assert address.startswith(f"/workloads/{huge.pk}/edit?patch=") and '"gpu":2' in address
    assert sign_in("erin").get(link).headers["Location"] == f"/workloads/{huge.pk}"


def submit_array(cast: Cast, name: str, tasks: int) -> WorkloadArray:
    document = {**training(name, array={"tasks": tasks}), "project": "vision"}
    return arrays.submit(actor=cast.dave, document=document).array


@pytest.mark.heavy
def test_users_can_filter_the_queue_by_their_own_workloads(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "theirs", "ProjectLimit")
    explanation = {"pool": "local", "queue_position": 2}
    make.workload(cast.vision, "own", by=cast.dave.user, reason="Backoff", explanation=explanation)
    client = sign_in("dave")
    assert names(client, "&mine=1") == ["own"]
    assert client.get(ADDRESS).context["own"] == 1
    assert "Me (1)</option>" in client.get(ADDRESS).content.decode()
    assert "Me (" not in sign_in("carol").get(ADDRESS).content.decode()


def test_every_row_states_its_reason_and_which_workloads_must_end_first(cast: Cast, sign_in: SignIn) -> None:
    ends = make.workload(cast.vision, "ends", phase="running")
    starts = make.ago(hours=-1).isoformat()
    after = {
        "expected_start": starts,
        "expected_start_after": [["vision/ends", starts], ["ads/hidden", starts]],
    }
    for position, (name, project) in enumerate(
        (("first", cast.vision), ("second", cast.vision), ("other", cast.speech)), start=1
    ):
        message = f"{project.name} would have 5 of 4.5 GPUs."
        explanation = {"pool": "local", "queue_position": position, **after}
        after = {"expected_start": starts, "expected_start_after": [["vision/ends", starts]]}
        make.workload(project, name, reason="WouldExceedFairShare", message=message, explanation=explanation)
    page = sign_in("alice").get(ADDRESS).content.decode()
    detail = '<span class="sub">{} would have 5 of 4.5 GPUs</span>'
    assert page.count(detail.format("vision")) == 2 and page.count(detail.format("speech")) == 1
    assert page.count('<span class="reason">Would exceed fair share</span>') == 3
    link = f'<a href="/workloads/{ends.pk}">vision/ends</a>'
    assert page.count(f", after {link}.</p>") == 2
    assert f", after {link} and ads/hidden.</p>" in page
    hidden = sign_in("dave").get(ADDRESS).content.decode()
    assert f"after {link} and a workload of another project.</p>" in hidden and "ads/hidden" not in hidden


def test_queue_position_is_explained_by_the_difference_from_the_next_row(cast: Cast, sign_in: SignIn) -> None:
    def queued(project: Project, name: str, position: int, share: float, priority: int, minutes: int) -> None:
        ordering = ["research: within its quota", f"{project.name}: would exceed its quota"]
        ordering += [f"dominant share 0.500, {share:.3f} with this workload", f"priority {priority}"]
        explanation = {"pool": "local", "queue_position": position, "ordering": ordering}
        make.workload(
            project, name, phase="pending", priority=priority, explanation=explanation,
            submitted_at=make.ago(minutes=minutes), pending_since=make.ago(minutes=minutes),
        )  # fmt: skip

    queued(cast.speech, "first", 1, 0.6, 50, 1)
    queued(cast.vision, "second", 2, 0.7, 50, 5)
    queued(cast.vision, "third", 3, 0.7, 40, 9)
    queued(cast.vision, "fourth", 4, 0.7, 40, 3)
    queued(cast.vision, "raised", 5, 0.7, 60, 1)
    page = sign_in("alice").get(ADDRESS).content.decode()
    assert re.findall(r"<li>Before (.*?)\.</li>", page) == [
        "second: speech uses less of its fair share than vision",
        "third: priority 50 is higher than 40",
        "fourth: pending for longer",
    ]
    by_name = sign_in("alice").get(f"{ADDRESS}&sort=name").content.decode()
    assert "<li>Before " not in by_name, "rows are not compared in another order"


def test_statement_count_does_not_depend_on_the_number_of_rows(cast: Cast, sign_in: SignIn) -> None:
    client, counts = sign_in("alice"), []
    for number in (1, 30):
        for place in range(number):
            queue(cast.vision, f"w-{number}-{place}", "ProjectLimit")
        with CaptureQueriesContext(connection) as statements:
            for address in (ADDRESS, "/queue"):
                assert client.get(address).status_code == 200
        counts.append(len(statements))
    assert counts[0] == counts[1]


@pytest.mark.heavy
def test_workloads_in_the_reserved_phase_come_first_without_a_position(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "first", "ProjectLimit")
    explanation = {"pool": "local", "queue_position": 4}
    waiting = make.workload(
        cast.vision, "waiting", phase=Phase.RESERVED, reason="WaitingForScaleUp", explanation=explanation
    )
    ready_at = make.ago(minutes=-4)
    node = make.node(cast.pool, 3, state="booting", ready_at=ready_at)
    Reservation.objects.create(workload=waiting, role="worker", index=0, node=node, devices=[0])
    context: Any = sign_in("alice").get(ADDRESS).context
    (row, expected, _, reservation), (next_row, *_) = context["rows"]
    assert (row.name, expected, next_row.name) == ("waiting", ready_at, "first")
    assert reservation == "starts on local-3 once it has booted"
    text = sign_in("alice").get(ADDRESS).content.decode()
    assert ">starts on local-3 once it has booted<" in text
    csv = streamed(sign_in("alice").get(f"{ADDRESS}&format=csv")).decode()
    assert [line.split(",")[:2] for line in csv.splitlines()[1:]] == [["", "waiting"], ["1", "first"]]


@pytest.mark.heavy
def test_expected_start_in_the_past_is_shown_as_due(cast: Cast, sign_in: SignIn) -> None:
    for name, minutes in (("late", 5), ("early", -5)):
        starts = make.ago(minutes=minutes).isoformat()
        explanation = {"pool": "local", "queue_position": 1, "expected_start": starts}
        make.workload(cast.vision, name, phase="pending", reason="Backoff", explanation=explanation)
    page = sign_in("alice").get(ADDRESS).content.decode()
    rows = {name: page[page.index(f">{name}</a>") :].split("</tr>")[0] for name in ("late", "early")}
    assert {name: "overdue since <time" in row for name, row in rows.items()} == {
        "late": True,
        "early": False,
    }


WITHIN, OVER = (
    ("within its quota", "within its fair share"),
    ("would exceed its quota", "would exceed its fair share"),
)


def key(research: tuple[str, str], vision: tuple[str, str]) -> list[str]:
    sentences = []
    for name, (quota, share) in {"research": research, "vision": vision}.items():
        sentences += [f"{name}: {quota}", "rank 0", share, "dominant share 0.000, 1.000 with this workload"]
    return [*sentences, "priority 100", "submitted 2026-11-28T11:51:03Z", "vision/train"]


@pytest.mark.parametrize(
    ("ordering", "words", "sentence"),
    [
        (key(WITHIN, WITHIN), "within quota",
         "Sorted before workloads that would exceed a quota or fair share."),
        (key(OVER, OVER), "would exceed quota",
         "Sorted after workloads within quota: research and vision would exceed theirs."),
        (key(WITHIN, OVER), "vision would exceed quota",
         "Sorted after workloads within quota: vision would exceed its own."),
        (key((WITHIN[0], OVER[1]), (OVER[0], WITHIN[1])),
         "research would exceed fair share, vision would exceed quota",
         ("Sorted after workloads within fair share and quota: research would exceed its fair share and "
          "vision its quota.")),
        ([], "", ""),
    ],
)  # fmt: skip
def test_queue_page_and_its_export_explain_the_order_of_the_queue(
    ordering: list[str], words: str, sentence: str, cast: Cast, sign_in: SignIn
) -> None:
    explanation = {"pool": "local", "queue_position": 1, "ordering": ordering}
    values: Any = {"phase": "pending", "reason": "ProjectLimit", "explanation": explanation}
    make.workload(cast.vision, "train", by=cast.dave.user, **values)
    client = sign_in("dave")
    page = client.get(ADDRESS).content.decode()
    popover = page.partition("<h3>Queue order of train</h3>")[2].partition("<details")[0]
    steps = re.findall(r"<li>(.*?)</li>", popover)
    assert steps[:-1] == ([sentence] if sentence else [])
    assert not ordering or steps[-1].startswith("In vision: priority ")
    project = re.search(r'data-label="Project">(.*?)</td>', page)
    who = '<span class="sub" title="Submitted by">dave</span>'
    assert project and project[1] == f"vision{who}", "the order does not compete with the reason"
    [line] = csv.DictReader(io.StringIO(streamed(client.get(f"{ADDRESS}&format=csv")).decode()))
    assert (line["Queue"], line["Submitted by"]) == (words, "dave")
    assert (names(client, "&search=dave"), names(client, "&search=erin")) == (["train"], [])


def test_queue_key_is_described_in_words() -> None:
    queue_key = QueueKey(True, 0, False, 0.0, True, 1.5, 1.0)
    assert describe_queue_states(queue_key.describe("vision")) == "would exceed quota"
