"""Tests for the order of the queue page: sections, reasons, ties, empty pools and unknown start times."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.actor import Actor
from projects.models import Phase, Project, Workload
from scheduler.engine.forecast import UNKNOWN_START
from scheduler.engine.plan import Reason
from scheduler.models import Reservation
from scheduler.reports.queues.queue_ordering import describe_order_difference
from scheduler.reports.queues.unknown_start import unknown_start_summary
from scheduler.web.queue_starts import load_workloads_without_max_runtime
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.queue.test_queue_page import ADDRESS, OVER, WITHIN, key, queue, submit_array


def test_row_explains_why_it_is_ahead_of_a_workload_with_a_higher_priority(
    cast: Cast, sign_in: SignIn
) -> None:
    for position, (project, priority, quota) in enumerate(
        [(cast.speech, 40, WITHIN), (cast.vision, 50, OVER), (cast.vision, 45, OVER)], start=1
    ):
        ordering = key(WITHIN, WITHIN)[:4] + key(quota, quota)[:4]
        ordering[4] = f"{project.name}: {quota[0]}"
        explanation = {"pool": "local", "queue_position": position, "ordering": ordering}
        make.workload(
            project, f"w{position}", priority=priority, reason="ProjectLimit", explanation=explanation
        )
    words = "ahead of a workload with priority 50: within quota, unlike vision"
    client = sign_in("alice")
    page = client.get(ADDRESS).content.decode()
    rows = {name: page[page.index(f">{name}</a>") :].split("</tr>")[0] for name in ("w1", "w2", "w3")}
    assert {name: words in row for name, row in rows.items()} == {"w1": True, "w2": False, "w3": False}
    assert words not in client.get(f"{ADDRESS}&sort=name").content.decode()


QUOTA = "within its quota", "would exceed its quota"
SHARE = "within its fair share", "would exceed its fair share"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((QUOTA[0], 0, SHARE[1], 2.0), (QUOTA[1], 3, SHARE[0], 0.5), "within quota, unlike vision"),
        ((QUOTA[1], 2, SHARE[1], 2.0), (QUOTA[1], 0, SHARE[0], 0.5), "higher rank than vision"),
        ((QUOTA[1], 0, SHARE[0], 2.0), (QUOTA[1], 0, SHARE[1], 0.5), "within fair share, unlike vision"),
        ((QUOTA[1], 0, SHARE[1], 1.1), (QUOTA[1], 0, SHARE[1], 1.2),
         "uses less of its fair share than vision"),
        ((QUOTA[1], 0, SHARE[1], 1.3), (QUOTA[1], 0, SHARE[1], 1.2),
         "before vision in fair-share order"),
    ],
)  # fmt: skip
def test_queue_order_is_explained_by_the_first_criterion_that_differs(
    first: tuple[str, int, str, float], second: tuple[str, int, str, float], words: str
) -> None:
    keys = [
        [
            f"{name}: {quota}",
            f"rank {rank}",
            share,
            f"dominant share 0.000, {with_workload} with this workload",
        ]
        for name, (quota, rank, share, with_workload) in (("speech", first), ("vision", second))
    ]
    assert describe_order_difference(*keys) == words


def test_workloads_that_cannot_start_yet_are_in_a_separate_section(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "queued", "ProjectLimit")
    unready = ["priority 50", "submitted 2026-11-28T11:51:03Z"]
    for position, (name, reason) in enumerate(
        [("restarts", "Backoff"), ("fetches", "FetchingCode")], start=2
    ):
        explanation = {"pool": "local", "queue_position": position, "ordering": unready}
        make.workload(cast.vision, name, reason=reason, explanation=explanation)
    client = sign_in("alice")
    assert sections(client) == ["Cannot start yet"]
    assert sections(client, "&sort=name") == []
    Workload.objects.filter(name="fetches").delete()
    make.workload(cast.vision, "holds", phase=Phase.RESERVED, pools=["local"])
    make.workload(cast.vision, "fresh", pools=["local"])
    assert sections(client) == ["New"], "the reason says the same as a heading for restart delays"


@pytest.mark.heavy
def test_new_workloads_are_in_order_of_priority_and_pending_time(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    queue(cast.vision, "queued", "ProjectLimit")
    for name, priority, minutes in (("young", 50, 1), ("urgent", 90, 2), ("old", 50, 9), ("low", 10, 60)):
        make.workload(
            cast.vision, name, pools=["local"], priority=priority, submitted_at=make.ago(minutes=minutes),
            pending_since=make.ago(minutes=minutes),
        )  # fmt: skip
    client = sign_in("alice")
    expected = ["queued", "urgent", "old", "young", "low"]
    sorts = ("position", "-gpus", "expected", "-expected")
    for query in (ADDRESS, "/queue", *(f"{ADDRESS}&sort={sort}" for sort in sorts)):
        context: Any = client.get(query).context
        assert [row.name for row, *_ in context["rows"]] == expected, query
    context = client.get(f"{ADDRESS}&sort=-priority").context
    assert [row.name for row, *_ in context["rows"]] == ["urgent", "queued", "old", "young", "low"]
    assert sections(client) == ["New"]


def sections(client: Client, query: str = "") -> list[str]:
    page = client.get(f"{ADDRESS}{query}").content.decode()
    return re.findall(r'<tr class="section"><th[^>]*>([\w ]+?)\s*<', page)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (UNKNOWN_START[Reason.DEPENDENCY_NOT_MET], "after its dependencies"),
        (UNKNOWN_START[Reason.WAITING_FOR_SCALE_UP], "when its nodes have booted"),
        ("workloads without a maximum runtime have 2 GPUs allocated, and this workload needs 1 GPU of that",
         "when other workloads end"),
        ("even if no workload ran, the ready nodes of pool local would lack 6 GPUs", "after nodes are added"),
        ("node boots is late", "when late nodes have booted"),
        ("nodes a and b are late", "when late nodes have booted"),
        ("the boot time of node boots is unknown", "when its nodes have booted"),
        ("another reason", "unknown"),
    ],
)  # fmt: skip
def test_unknown_expected_start_is_explained(reason: str, words: str) -> None:
    assert unknown_start_summary(reason) == words


@pytest.mark.heavy
def test_queue_lists_the_workloads_without_a_maximum_runtime(cast: Cast, sign_in: SignIn) -> None:
    because = "workloads without a maximum runtime have 2 GPUs allocated, and this workload needs 1 GPU"
    explanation = {"pool": "local", "queue_position": 1, "expected_start_reason": because}
    make.workload(cast.vision, "waits", pools=["local"], explanation=explanation)

    def start() -> str:
        page = sign_in("erin").get(ADDRESS).content.decode()
        return page.partition('data-label="Expected start"')[2].partition("</td>")[0]

    def run(project: Project, name: str) -> Workload:
        return make.workload(project, name, phase=Phase.RUNNING, pool=cast.pool, gpu_milli_now=1000)

    assert "when other workloads end</button>" in start(), "as on the workload's page"
    assert "no max runtime" not in start()
    run(cast.ads, "hidden")
    assert "hidden" not in start().replace("visually-hidden", "")
    endless = run(cast.vision, "endless")
    assert ">vision/endless has no max runtime<" in start()
    assert f'<a href="/workloads/{endless.pk}">vision/endless</a>' in start()
    run(cast.vision, "another")
    assert ">at least 2 have no max runtime<" in start()


@pytest.mark.heavy
def test_queue_loads_five_workloads_without_a_maximum_runtime_and_counts_the_others(
    cast: Cast, sign_in: SignIn
) -> None:
    because = "workloads without a maximum runtime have 9 GPUs allocated, and this workload needs 1 GPU"
    explanation = {"pool": "local", "queue_position": 1, "expected_start_reason": because}
    make.workload(cast.vision, "waits", pools=["local"], explanation=explanation)
    [entry] = sign_in("dave").get(ADDRESS).context["rows"]

    def load() -> tuple[int, int]:
        """Return the numbers of statements and of rows that they return."""
        with CaptureQueriesContext(connection) as statements:
            load_workloads_without_max_runtime(dave, [entry])
        with connection.cursor() as cursor:
            rows = [cursor.execute(each["sql"]) and cursor.fetchall() for each in statements]
        return len(rows), sum(map(len, rows))

    dave, array = Actor.for_user(cast.dave.user), submit_array(cast, "sweep", 3)
    running: dict[str, Any] = {"phase": Phase.RUNNING, "pool": cast.pool, "gpu_milli_now": 1000}
    Workload.objects.filter(array=array).update(**running)
    for index in range(5):
        make.workload(cast.vision, f"endless-{index}", **running)
    load()  # loads the roles of the user, once
    few = load()
    assert few[1] == 5
    for index in range(5, 40):
        make.workload(cast.vision, f"endless-{index}", **running)
    assert load() == few
    page = sign_in("dave").get(ADDRESS).content.decode()
    assert ">41 have no max runtime<" in page and "36 more." in page
    assert f'<a href="/arrays/{array.pk}">vision/sweep</a>' in page and "sweep-" not in page
    make.workload(cast.ads, "theirs", **running)
    page = sign_in("dave").get(ADDRESS).content.decode()
    assert ">at least 41 have no max runtime<" in page and "at least 36 more." in page
    assert ">42 have no max runtime<" in sign_in("alice").get(ADDRESS).content.decode()


@pytest.mark.parametrize(("sort", "names"), [("expected", "boots early late unknown"),
                                             ("-expected", "late early boots unknown")])  # fmt: skip
def test_queue_is_sorted_by_expected_start(sort: str, names: str, cast: Cast, sign_in: SignIn) -> None:
    for name, minutes in (("unknown", None), ("late", 90), ("early", 30)):
        starts = {} if minutes is None else {"expected_start": make.ago(minutes=-minutes).isoformat()}
        make.workload(cast.vision, name, reason="ProjectLimit", explanation={"pool": "local", **starts})
    boots = make.workload(cast.vision, "boots", phase=Phase.RESERVED, explanation={"pool": "local"})
    node = make.node(cast.pool, 3, state="booting", ready_at=make.ago(minutes=-4))
    Reservation.objects.create(workload=boots, role="worker", index=0, node=node, devices=[0])
    context: Any = sign_in("dave").get(f"{ADDRESS}&sort={sort}").context
    assert [row.name for row, *_ in context["rows"]] == names.split()


@pytest.mark.heavy
def test_new_workload_that_allows_several_pools_is_not_listed_under_a_pool(
    cast: Cast, sign_in: SignIn
) -> None:
    for name in ("empty", "spare", "third"):
        make.pool(name)
    make.workload(cast.vision, "placed", explanation={"pool": "spare", "queue_position": 1})
    new: Any = {"reason": "Submitted", "message": "Waiting for the next scheduling cycle."}
    make.workload(cast.vision, "any", pools=["local", "spare", "third"], **new)
    client = sign_in("dave")
    page = client.get("/queue").content.decode()
    headings = re.findall(
        r'scope="rowgroup"[^>]*>(?:<a[^>]*>)?([\w ]+?)(?:</a>)? <span class="soft">([^<]*)', page
    )
    assert headings == [
        ("spare", "1 pending, 1 GPU requested, 0 free"),
        ("Several pools", "1 pending, 1 GPU requested, no pool chosen yet"),
    ]
    assert "allows local or 2 other pools" in page
    assert "waiting for the next scheduling cycle" not in page, "the pools need the line"
    context: Any = client.get("/queue").context
    assert context["pools"] == [("empty", 0), ("local", 1), ("spare", 2), ("third", 1)]
    for pool, names in (("empty", []), ("local", ["any"]), ("spare", ["placed", "any"])):
        context = client.get(f"/queue?pool={pool}").context
        assert [row.name for row, *_ in context["rows"]] == names, pool
    by_name = client.get("/queue?sort=name").content.decode()
    assert 'title="Also allows spare, third">local +2<span class="visually-hidden"> other pools' in by_name
    assert "waiting for the next scheduling cycle" in by_name


def test_selecting_a_pool_keeps_the_filters(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    for project, pool in ((cast.vision, "local"), (cast.speech, "spare")):
        make.workload(project, "w", by=cast.alice.user, reason="Backoff", explanation={"pool": pool})
    page = sign_in("alice").get("/queue?pool=spare").content.decode()
    for name in ("pool", "project", "reason", "mine"):
        assert f'id="f-{name}"' in page, name


def test_every_reason_for_an_unknown_expected_start_has_an_explanation() -> None:
    assert {unknown_start_summary(reason) for reason in UNKNOWN_START.values()}.isdisjoint({"unknown"})


def test_first_click_on_priority_shows_the_highest_priority_first(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "train", explanation={"pool": "local"})
    client = sign_in("alice")
    assert 'sort=-priority" hx-get' in client.get(ADDRESS).content.decode()
    assert 'sort=priority" hx-get' in client.get(f"{ADDRESS}&sort=-priority").content.decode()


def test_empty_pool_keeps_the_filters_and_links_to_all_pools(cast: Cast, sign_in: SignIn) -> None:
    make.pool("empty")
    make.workload(cast.vision, "mine", phase="pending", reason="ProjectLimit", explanation={"pool": "local"})
    page = sign_in("dave").get("/queue?pool=empty").content.decode()
    assert "No pending workloads in this pool" in page
    assert re.search(r'<a class="button" href="/queue">Show all pools</a>', page)
    assert '<option value="local">local (1)</option>' in page


def test_equal_priorities_are_in_queue_order(cast: Cast, sign_in: SignIn) -> None:
    for position, priority in ((3, 50), (1, 50), (4, 90), (2, 50)):
        explanation = {"pool": "local", "queue_position": position, "ordering": []}
        make.workload(
            cast.vision, f"at-{position}", phase="pending", reason="ProjectLimit", priority=priority,
            explanation=explanation,
        )  # fmt: skip
    context: Any = sign_in("dave").get("/queue?pool=local&sort=-priority").context
    assert [row.name for row, *_ in context["rows"]] == ["at-4", "at-1", "at-2", "at-3"]


def test_queue_shows_how_many_workloads_match_the_filters(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    for position, pool in enumerate(("local", "local", "spare")):
        explanation = {"pool": pool, "queue_position": position + 1}
        reason = "WaitingForCapacity" if position else "ProjectLimit"
        make.workload(cast.vision, f"w{position}", reason=reason, explanation=explanation)
    client = sign_in("alice")
    all_rows = client.get("/queue").content.decode()
    assert "3 workloads, 3 GPUs requested." in all_rows and "2 pending, 2 GPUs requested, " in all_rows
    filtered = client.get("/queue?reason=ProjectLimit").content.decode()
    assert "1 of 3 workloads, 1 of 3 GPUs requested." in filtered
    assert "1 of 2 pending, 1 of 2 GPUs requested, " in filtered


def test_positions_include_the_pool_in_a_list_of_several_pools(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    for pool in ("local", "spare"):
        make.workload(cast.vision, pool, explanation={"pool": pool, "queue_position": 1})
    make.workload(cast.vision, "freed", phase="reserved", pool=cast.pool)
    client = sign_in("alice")
    for address in ("/queue", "/queue?sort=name"):
        page = client.get(address).content.decode()
        assert ">reserved<" in page and ">next<" not in page
        assert ("in pool </span>spare</span>" in page) == ("sort" in address)
