"""Tests for the decision pages: filters, links, the replay, and what other tenants see."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape
from pytest_django import DjangoAssertNumQueries

from berth.core.wording.words import format_ranges
from projects.models import Project, Workload
from projects.services import arrays
from scheduler.models import Cycle, Eviction
from scheduler.reports import decisions
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
SWEEP = {
    "name": "sweep", "project": "vision", "command": "python train.py", "roles": [{"gpu": 1}],
    "array": {"matrix": {"SEED": list(range(6))}},
}  # fmt: skip


def step(do: str, workload: str, node: str, index: int = 0) -> dict[str, Any]:
    return {
        "do": do,
        "workload": workload,
        "role": "worker",
        "index": index,
        "node": node,
        "devices": [index],
    }


def bundle(kind: str, workload: str, *steps: dict[str, Any], message: str = "") -> dict[str, Any]:
    return {"kind": kind, "workload": workload, "pool": "local", "message": message, "steps": list(steps)}


@pytest.fixture
def reclaim(cast: Cast) -> Eviction:
    """Create a cycle that starts vision/train, and a cycle in which ads/ranker evicts vision/train."""
    Project.objects.update(created_at=make.ago(hours=9))
    victim = make.workload(cast.vision, "train", submitted_at=make.ago(hours=2))
    preemptor = make.workload(cast.ads, "ranker", phase="running", submitted_at=make.ago(hours=2))
    start = bundle("start", "vision/train", *(step("place", "vision/train", "node-1", n) for n in range(2)))
    make.cycle(at=make.ago(hours=1), bundles=1, applied=1, plan={"bundles": [start], "stale": []})
    evict = bundle(
        "reclaim", "ads/ranker",
        step("stop", "vision/train", "node-1"), step("stop", "vision/train", "node-1", 1),
        step("reserve", "ads/ranker", "node-1"), message="Uses the quota of ads.",
    )  # fmt: skip
    outdated = {**bundle("start", "search/index"), "why": "the node has ended"}
    cycle = make.cycle(
        at=make.ago(minutes=5), bundles=2, applied=1, stale=1, evictions=1,
        plan={"bundles": [evict], "stale": [outdated]},
    )  # fmt: skip
    return make.eviction(victim, preemptor, cast.pool, cycle=cycle.pk)


def page(client: Client, path: str) -> str:
    answer = client.get(path, headers=HTMX)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_decision_list_links_to_workloads_evictions_and_cycles(
    cast: Cast, sign_in: SignIn, reclaim: Eviction
) -> None:
    text = page(sign_in("alice"), "/decisions")
    assert "Reclaim" in text and "1 pod on node-1 after the eviction" in text and "2 pods on node-1" in text
    for row in Workload.objects.all():
        assert f"/workloads/{row.pk}" in text
    assert re.search(rf'href="/evictions/{reclaim.pk}">Reclaimed<.*?</a>, <span>2 pods</span>', text)
    assert "Uses the quota of ads." in text
    assert f"/evictions/{reclaim.pk}" in text and f"/decisions/{reclaim.cycle}" in text
    assert f"/decisions/{reclaim.cycle}" in page(sign_in("alice"), f"/evictions/{reclaim.pk}")


@pytest.mark.parametrize(
    ("query", "shown", "missing"),
    [
        ("kind=start", "2 pods on node-1", "Reclaim</span>"),
        ("kind=reclaim&pool=local", "Reclaim</span>", "2 pods on node-1"),
        ("project=ads", "Reclaim</span>", "2 pods on node-1"),
        ("workload=RANK", "Reclaim</span>", "2 pods on node-1"),
        ("workload=train", "2 pods on node-1", "No matches"),
        ("pool=other", "No matches", "train"),
        ("workload=%22%29%20%5C", "No matches", "train"),
        ("since=2099-01-01", "No matches", "train"),
    ],
)
def test_decision_list_applies_its_filters(
    cast: Cast, sign_in: SignIn, reclaim: Eviction, query: str, shown: str, missing: str
) -> None:
    text = page(sign_in("alice"), f"/decisions?{query}")
    assert shown in text
    assert missing not in text


def test_decisions_show_their_reasons_and_are_filtered_by_period(
    cast: Cast, sign_in: SignIn, reclaim: Eviction
) -> None:
    alice = sign_in("alice")
    Cycle.objects.filter(evictions=0).update(at=make.ago(hours=30))
    pages = {
        period: alice.get(f"/decisions?period={period}").content.decode() for period in ("", "24h", "7d")
    }
    reason = "Uses the quota of ads."
    assert [reason in page for page in pages.values()] == [True] * 3
    start = escape(decisions.KIND_REASONS["start"])
    assert [start in page for page in pages.values()] == [True, False, True]
    assert '<option value="24h" selected>Last 24 hours</option>' in pages["24h"]


@pytest.mark.heavy
@pytest.mark.parametrize("user", ["alice", "erin"])
def test_decision_filters_search_only_the_latest_cycles_of_a_period(
    cast: Cast, sign_in: SignIn, reclaim: Eviction, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setattr(decisions, "CYCLES_SEARCHED", 1)
    client, before = sign_in(user), make.ago(minutes=30).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "No matches" in page(client, "/decisions?kind=start")
    assert "2 pods on node-1" in page(client, f"/decisions?kind=start&until={before}")


def test_decisions_hide_the_names_of_other_tenants(cast: Cast, sign_in: SignIn, reclaim: Eviction) -> None:
    for path in ("/decisions", f"/decisions/{reclaim.cycle}"):
        text = page(sign_in("erin"), path)
        assert "workload in project ads" in text and "train" in text, path
        for secret in (
            "ranker",
            "Uses the quota of ads",
            "search/index",
            "Replay",
            str(reclaim.preemptor_id),
        ):
            assert secret not in text, (path, secret)
    assert "No matches" in page(sign_in("erin"), "/decisions?workload=ranker")
    assert "No decisions yet" in page(sign_in("frank"), "/decisions")
    assert sign_in("frank").get(f"/decisions/{reclaim.cycle}").status_code == 404


@pytest.mark.heavy
def test_new_project_with_a_reused_name_sees_no_older_decisions(
    cast: Cast, sign_in: SignIn, reclaim: Eviction
) -> None:
    Project.objects.update(created_at=make.ago(minutes=1))
    assert sign_in("erin").get(f"/decisions/{reclaim.cycle}").status_code == 404
    assert "2 pods on node-1" not in page(sign_in("erin"), "/decisions")


@pytest.mark.heavy
def test_replay_of_a_cycle_without_a_snapshot_explains_the_problem(
    cast: Cast, sign_in: SignIn, reclaim: Eviction
) -> None:
    path = f"/decisions/{reclaim.cycle}/replay"
    text = page(sign_in("alice"), f"/decisions/{reclaim.cycle}")
    assert "The snapshot of this cycle is not stored, so it cannot be replayed." in text
    assert '<button class="button" disabled aria-describedby="no-snapshot">Replay cycle</button>' in text
    answer = sign_in("alice").post(path, headers=HTMX)
    assert "The snapshot of this cycle is not stored" in answer.content.decode()
    assert sign_in("bob").post(path).status_code == 404
    assert "the node has ended" in page(sign_in("alice"), f"/decisions/{reclaim.cycle}")


def test_decision_list_query_count_is_independent_of_the_number_of_decisions(
    cast: Cast, sign_in: SignIn, reclaim: Eviction, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    alice = sign_in("alice")
    for number in range(20):
        start = bundle("start", f"vision/w{number}", step("place", f"vision/w{number}", "node-1"))
        make.cycle(bundles=1, applied=1, plan={"bundles": [start], "stale": []})
    with django_assert_max_num_queries(12):
        page(alice, "/decisions")


def test_tasks_of_an_array_share_a_row_unless_another_decision_is_between_them(
    cast: Cast, sign_in: SignIn
) -> None:
    array = arrays.submit(actor=cast.dave, document=SWEEP, now=make.ago(hours=1)).array
    names = Workload.objects.filter(array=array).order_by("array_index").values_list("name", flat=True)
    tasks = [f"vision/{name}" for name in names]
    make.workload(cast.vision, "between", submitted_at=make.ago(hours=1))
    for number, handle in enumerate([*tasks[:4], "vision/between", *tasks[4:]]):
        start = bundle("start", handle, step("place", handle, "node-1"))
        make.cycle(id=700 + number, bundles=1, applied=1, plan={"bundles": [start], "stale": []})
    text = page(sign_in("erin"), "/decisions")
    body = text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert body.count("<tr>") == 4  # two tasks, the other workload and four tasks
    assert "4 array tasks" in body
    assert f'href="/arrays/{array.pk}">sweep</a>' in body
    assert (
        'href="/decisions/700">Cycle 700</a>\N{EN DASH}<a class="plain-link" href="/decisions/703">703</a>'
        in body
    )
    assert all(f">{handle.partition('/')[2]}</a>" in body for handle in tasks)


def test_decision_page_explains_the_decision_in_sentences(
    cast: Cast, sign_in: SignIn, reclaim: Eviction
) -> None:
    text = page(sign_in("alice"), f"/decisions/{reclaim.cycle}")
    assert "Berth reserved resources" not in text, "the table states it"
    assert "<strong>Reason:</strong> Uses the quota of ads." in text
    first, second = re.findall(r"<tbody>(.*?)</tbody>", text, re.DOTALL)[0].split("</tr>")[:2]
    assert "worker 0, 1" in first and "Stop" in first, "one row for the pods of a workload on one node"
    assert "worker 0<" in second and "Reserve" in second
    assert f"/evictions/{reclaim.pk}" in text

    Cycle.objects.filter(pk=present(reclaim.cycle)).update(
        plan={"bundles": [bundle("reclaim", "ads/ranker", step("stop", "vision/train", "node-1"))]}
    )
    text = page(sign_in("alice"), f"/decisions/{reclaim.cycle}")
    assert f"<strong>Reason:</strong> {reclaim.rule}" in text, "the rule of the eviction is the reason"


def test_steps_of_a_decision_link_to_workloads_nodes_and_evictions(
    cast: Cast, sign_in: SignIn, reclaim: Eviction
) -> None:
    def steps(user: str) -> str:
        return re.findall(
            r"<tbody>(.*?)</tbody>", page(sign_in(user), f"/decisions/{reclaim.cycle}"), re.DOTALL
        )[0]

    victim, preemptor = f"/workloads/{reclaim.workload_id}", f"/workloads/{reclaim.preemptor_id}"
    assert 'href="/nodes/node-1"' not in steps("alice"), "the node no longer exists"
    make.node(cast.pool, name="node-1")
    for_admin, for_member = steps("alice"), steps("erin")
    assert "Berth reserved resources for 1 pod of a workload in project ads" in page(
        sign_in("erin"), f"/decisions/{reclaim.cycle}"
    )
    for address in (victim, preemptor, f"/evictions/{reclaim.pk}", "/nodes/node-1"):
        assert f'href="{address}"' in for_admin, address
    assert f'href="{victim}"' in for_member and 'href="/nodes/node-1"' in for_member
    assert preemptor not in for_member


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([1, 0], "0, 1"), ([0, 1, 2, 3, 6], "0 to 3, 6")]
)
def test_consecutive_pods_and_devices_are_abbreviated_as_ranges(numbers: list[int], text: str) -> None:
    assert format_ranges(numbers) == text
