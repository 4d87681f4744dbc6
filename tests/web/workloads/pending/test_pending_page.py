"""Tests for the sums, links and evictions on the page of a pending workload."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from berth.documents.ordered import dump_workload
from projects.models import Quota, Workload
from projects.services.workloads.pending.unschedulable import report_unschedulable
from scheduler.engine.explain.reasons import blocker
from scheduler.engine.plan import Reason
from scheduler.models import Eviction
from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn
from tests.web.search.test_search import HTMX

GPU = {"resource": "gpu", "queue": "vision"}
OVER_SHARE = {**GPU, "allocated": 750, "requested": 6000, "bound": 6000, "share": 6000, "quota": 4000}
SHORTAGE = {"resource": "gpu", "requested": 6000, "free": 1250, "missing": 4750}


def document(reason: Reason, numbers: dict[str, Any]) -> dict[str, Any]:
    made = blocker(reason, numbers)
    return {"reason": str(reason), "message": made.message, "numbers": numbers}


def test_card_states_the_label_of_the_reason_and_then_its_numbers(cast: Cast, sign_in: SignIn) -> None:
    blockers = [
        document(Reason.WOULD_EXCEED_FAIR_SHARE, OVER_SHARE),
        document(Reason.WAITING_FOR_CAPACITY, SHORTAGE),
        document(Reason.WAITING_FOR_SCALE_UP, {"nodes": 1}),
    ]
    workload = make.workload(cast.vision, "sweep", explanation={"blockers": blockers})
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    card = page.partition('aria-label="Pending reason"')[2].partition("</section>")[0]
    assert '<h2 id="why-title">Would exceed fair share</h2>' in card
    short = "Needs 6 GPUs, 1.25 are free. vision would have 6.75 GPUs, more than its fair share of 6"
    assert f">{short}, so only free capacity can be used.</p>" in card
    label = "0.75 allocated, 6 requested, fair share 6"
    assert f'aria-label="{label}"><rect class="track"' in card
    assert '<rect class="used" x="0" width="111"' in card and '<rect class="requested" x="111"' in card
    assert "missing" not in card.lower() and "most free on one node" not in card.lower()
    assert "<details" not in card and "<h3>Waiting for scale up</h3>" in card


@pytest.mark.parametrize(
    ("reason", "queue", "label", "row"),
    [
        (Reason.WOULD_EXCEED_FAIR_SHARE, "vision", "Fair share", 0),
        (Reason.WOULD_EXCEED_FAIR_SHARE, "research", "Fair share", 1),
        (Reason.PROJECT_LIMIT, "vision", "Limit", 0),
        (Reason.DEPARTMENT_LIMIT, "research", "Limit", 1),
        (Reason.NON_PREEMPTIBLE_OVER_QUOTA, "vision", "Quota", 0),
    ],
)
def test_blocking_limit_or_quota_is_highlighted_in_the_queue_table(
    reason: Reason, queue: str, label: str, row: int, cast: Cast, sign_in: SignIn
) -> None:
    blockers = [document(reason, {**OVER_SHARE, "queue": queue})]
    workload = make.workload(cast.vision, "sweep", explanation={"blockers": blockers})
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    rows = page.partition('class="stacked queue-amounts"')[2].partition("</table>")[0].split("<tr>")[2:]
    marked = [re.findall(r'deciding" data-label="([^"]+)".*?([\d.]+) needed', each) for each in rows]
    assert marked[row] == [(label, "6.75")] and marked[1 - row] == []


def test_numbers_in_a_pending_reason_have_thousands_separators(cast: Cast, sign_in: SignIn) -> None:
    blockers = [document(Reason.PROJECT_LIMIT, {**OVER_SHARE, "allocated": 12_345_000, "queue": "vision"})]
    workload = make.workload(cast.vision, "sweep", explanation={"blockers": blockers})
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert "vision would have 12,351 GPUs, more than its limit of 6." in page
    assert "12,345 allocated, 6 requested" in page and ">12,351 needed</span>" in page


def test_exceeded_limits_of_project_and_department_are_both_highlighted(cast: Cast, sign_in: SignIn) -> None:
    blockers = [
        document(Reason.PROJECT_LIMIT, {**OVER_SHARE, "queue": "vision"}),
        document(Reason.DEPARTMENT_LIMIT, {**OVER_SHARE, "queue": "research", "allocated": 9000}),
    ]
    workload = make.workload(cast.vision, "sweep", explanation={"blockers": blockers})
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    rows = page.partition('class="stacked queue-amounts"')[2].partition("</table>")[0].split("<tr>")[2:]
    assert ["6.75 needed" in rows[0], "15 needed" in rows[1]] == [True, True]


@pytest.mark.parametrize("numbers", [{**OVER_SHARE, "resource": "cpu"}, {**OVER_SHARE, "behind": "vision/a"}])
def test_gpu_amounts_are_not_highlighted_if_another_resource_is_decisive(
    numbers: dict[str, Any], cast: Cast, sign_in: SignIn
) -> None:
    blockers = [document(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**numbers, "held": 0})]
    workload = make.workload(cast.vision, "sweep", explanation={"blockers": blockers})
    assert "deciding" not in sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()


def test_reason_links_to_the_workload_that_resources_are_held_for(cast: Cast, sign_in: SignIn) -> None:
    first = make.workload(cast.vision, "first")
    blockers = [document(Reason.BEHIND_RESERVATION, {"behind": first.handle})]
    workload = make.workload(cast.vision, "sweep", explanation={"blockers": blockers})
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert f'held for <a href="/workloads/{first.pk}">vision/first</a>, which has waited longer' in page


def evicted(
    cast: Cast, kind: str = "reclaim", record: Mapping[str, Any] | None = None, **columns: Any
) -> tuple[str, Eviction]:
    """Return the address of a workload evicted by one in project ads, and the eviction."""
    make.create_scheduler_lease()
    victim = make.workload(
        cast.vision, "victim", replicas=4, run=1, preemptions=1, started_at=make.ago(minutes=80), **columns
    )
    preemptor = make.workload(cast.ads, "nightly", phase="running", run=1)
    return f"/workloads/{victim.pk}", make.eviction(
        victim, preemptor, cast.pool, kind=kind, at=make.ago(minutes=12), **(record or {})
    )


def eviction_facts(page: str) -> str:
    text = page.partition('id="last-eviction"')[2].partition("</div>")[0]
    text = re.sub(r'<time datetime="([^"]+)"[^>]*>[^<]*</time>', r"\1", text)
    words = " ".join(re.sub(r"<[^>]+>", " ", text.partition(">")[2]).split())
    return re.sub(" ([.,])", r"\1", words)


def test_card_names_and_links_the_workload_that_reclaimed_the_gpus(cast: Cast, sign_in: SignIn) -> None:
    saved = datetime(2026, 11, 29, 18, 40, tzinfo=UTC)
    address, eviction = evicted(cast, last_checkpoint_at=saved)
    page = sign_in("alice").get(address).content.decode()
    assert f'<a href="/workloads/{eviction.preemptor_id}">ads/nightly</a>' in page
    text = eviction_facts(page)
    assert text.startswith("Last eviction Evicted ") and " by ads/nightly, which reclaimed 4 GPUs." in text
    assert "ads/nightly" not in page.partition('id="notices"')[2].partition("</div>")[0], "no second notice"
    assert f"Resumes from the checkpoint of {saved.isoformat()}." in text
    assert page.index('id="why"') < page.index('id="last-eviction"')
    hidden = eviction_facts(sign_in("dave").get(address).content.decode())
    assert " by a workload in project ads, which reclaimed 4 GPUs." in hidden and "nightly" not in hidden


def test_eviction_card_shows_the_numbers_of_each_queue_in_the_rule(cast: Cast, sign_in: SignIn) -> None:
    numbers = {
        "victim": [
            make.eviction_side("vision", 8, 11, 12, 8),
            make.eviction_side("research", 20, 26, 20, 16),
        ],
        "preemptor": [make.eviction_side("ads", 8, 6, 2, 6)],
    }
    rule = "ads stays within its quota of 8 GPUs, and vision was over its own"
    address, _ = evicted(cast, record={"rule": rule, "numbers": numbers})
    text = eviction_facts(sign_in("alice").get(address).content.decode()).replace("\N{NO-BREAK SPACE}", " ")
    assert "vision: 12 GPUs allocated before, 8 GPUs after, quota 8 GPUs, fair share 11 GPUs" in text
    assert "At the time of the eviction: ads: 2 GPUs allocated before, 6 GPUs after, quota 8 GPUs" in text
    assert "research:" not in text, "the rule does not name the department"


def test_card_mentions_no_checkpoint_if_none_was_recorded(cast: Cast, sign_in: SignIn) -> None:
    address, _ = evicted(cast)
    assert "checkpoint" not in eviction_facts(sign_in("dave").get(address).content.decode())


def test_card_states_that_a_drain_caused_the_eviction(cast: Cast, sign_in: SignIn) -> None:
    address, _ = evicted(cast, kind="drain")
    cause = "victim was evicted because its node is drained"
    assert cause in eviction_facts(sign_in("dave").get(address).content.decode())


def test_page_states_when_the_last_run_started_and_ended(cast: Cast, sign_in: SignIn) -> None:
    address, eviction = evicted(cast)
    page = sign_in("dave").get(address).content.decode()
    run = page.partition("<dt>Last run</dt><dd>")[2].partition("</dd>")[0]
    assert re.findall(r'datetime="([^"]+)"', run)[1] == eviction.at.isoformat()
    assert "<dt>Started</dt>" not in page


def test_header_and_facts_link_to_queue_pool_and_project(cast: Cast, sign_in: SignIn) -> None:
    explanation = {"queue_position": 4, "pool": cast.pool.name}
    workload = make.workload(cast.vision, "sweep", explanation=explanation, pools=[cast.pool.name])
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert f'<a href="/queue?pool={cast.pool.name}">Queue position 4</a>' in page
    assert page.count(f'<a href="/node-pools/{cast.pool.name}">{cast.pool.name}</a>') == 2
    assert '<dt>Project</dt><dd><a href="/workloads?project=vision">vision</a>' in page


def test_smallest_change_links_to_the_workloads_that_it_would_evict(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "The workload would start now. This would evict ads/ctr, vision/own and vision/own-2."
    answer = RenderedChange("change", sentence, None, 3, affected=("ads/ctr", "vision/own", "vision/own-2"))
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    for project, name in ((cast.ads, "ctr"), (cast.vision, "own"), (cast.vision, "own-2")):
        make.workload(project, name, phase="running")
    workload = make.workload(cast.vision, "sweep")
    path = f"/workloads/{workload.pk}/smallest-change"
    card = sign_in("alice").get(path).content.decode()
    assert re.findall(r'<a href="/workloads/[^"]+">([^<]+)</a>', card) == [*answer.affected]
    card = sign_in("dave").get(path).content.decode()
    assert re.findall(r'<a href="/workloads/[^"]+">([^<]+)</a>', card) == ["vision/own", "vision/own-2"]


def test_unschedulable_workload_page_states_all_reasons(cast: Cast, sign_in: SignIn) -> None:
    make.node(cast.pool)
    make.quota(cast.vision, cast.pool, 2, limit_gpu_milli=2000)
    document = {**training("never", project="vision"), "roles": [{"name": "worker", "gpu": 64}]}
    client = sign_in("dave")
    text = dump_workload(document)
    to = client.post("/submit", {"document": text, "agreed": text, "step": "submit"}, headers=HTMX)
    workload = Workload.objects.get(name="never")
    message = "Exceeds the node shape: 64 GPUs requested."
    Workload.objects.update(
        reason="Unschedulable", message=message, explained_at=timezone.now(),
        explanation={"blockers": [{"reason": "ExceedsNodeShape", "message": message, "numbers": {}}]},
    )  # fmt: skip
    report_unschedulable({workload.pk: message}, actor="scheduler", now=timezone.now())
    page = client.get(to.headers["HX-Redirect"]).content.decode()
    limit = "The workload requests more GPUs than the limit of vision, so it cannot start as specified."
    banner = page[page.index('<div class="notice warn"') :].split("</div>")[0]
    assert f"Workload <strong>never</strong> submitted. {limit}" in banner
    card = page[page.index('aria-label="Pending reason"') :].split("</section>")[0]
    assert message in card and limit in card
    event = page[page.index('<li class="bad">') :].split("</li>")[0]
    assert "Unschedulable" in event and message in event
    Quota.objects.update(limit_gpu_milli=None)
    assert limit not in client.get(f"/workloads/{workload.pk}").content.decode().split('id="recent-title"')[0]


def test_pods_of_an_evicted_workload_are_labelled_last_run(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", run=1, started_at=make.ago(minutes=9))
    make.place(workload, make.node(cast.pool), [0], state="stopped", ended_at=make.ago(minutes=5))
    Workload.objects.filter(pk=workload.pk).update(gpu_milli_now=0)
    head = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode().partition('id="pods-title"')[2]
    assert "last run</span>" in head[:200] and "0 <span" not in head[:200]
