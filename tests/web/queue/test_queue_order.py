"""Tests for the order of the queue page: sections, reasons, ties, empty pools and unknown start times."""

import re
from typing import Any

import pytest
from django.test import Client

from projects.models import Phase, Workload
from scheduler.engine.forecast import UNKNOWN_START
from scheduler.engine.plan import Reason
from scheduler.reports.queues.queue_ordering import describe_order_difference
from scheduler.reports.queues.unknown_start import short_start_reason
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.queue.test_queue_page import ADDRESS, OVER, WITHIN, key, queue


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
def test_order_of_two_queues_is_explained_by_the_first_difference(
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
    assert sections(client) == ["In queue order", "Cannot start yet"]
    Workload.objects.filter(name="fetches").delete()
    assert sections(client) == ["In queue order", "Restart delay"]
    make.workload(cast.vision, "holds", phase=Phase.RESERVED, pools=["local"])
    make.workload(cast.vision, "fresh", pools=["local"])
    assert sections(client) == ["Reserved", "In queue order", "Restart delay", "New"]
    assert sections(client, "&sort=name") == []
    Workload.objects.exclude(name="queued").delete()
    assert sections(client) == []


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
        ("even if no workload ran, the pool's ready nodes would lack 6 GPUs", "after nodes are added"),
        ("node boots is late", "when late nodes have booted"),
        ("nodes a and b are late", "when late nodes have booted"),
        ("the boot time of node boots is unknown", "when its nodes have booted"),
        ("another reason", "unknown"),
    ],
)  # fmt: skip
def test_unknown_expected_start_is_explained(reason: str, words: str) -> None:
    assert short_start_reason(reason) == words


def test_queue_says_that_other_workloads_have_no_maximum_runtime(cast: Cast, sign_in: SignIn) -> None:
    because = "workloads without a maximum runtime have 2 GPUs allocated, and this workload needs 1 GPU"
    explanation = {"pool": "local", "queue_position": 1, "expected_start_reason": because}
    make.workload(cast.vision, "waits", pools=["local"], explanation=explanation)
    page = sign_in("erin").get(ADDRESS).content.decode()
    start = page.partition('data-label="Expected start"')[2].partition("</td>")[0]
    assert "unknown</button>" in start and "some workloads have no max runtime" in start


def test_every_reason_for_an_unknown_expected_start_has_an_explanation() -> None:
    assert {short_start_reason(reason) for reason in UNKNOWN_START.values()}.isdisjoint({"unknown"})


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
