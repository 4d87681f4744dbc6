"""A quota preview matches the next cycle and stores nothing."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.core.errors import Forbidden, Invalid
from projects.models import Audit, Quota, QuotaChange
from projects.services.quotas.documents import read_draft
from projects.services.quotas.drafts import apply_draft, compare, tag_of
from scheduler.models import Eviction
from scheduler.reports.what_if.quota_preview import Impact, preview
from tests.scheduler.stage import Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]
TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


def changes(*entries: Any) -> dict[str, Any]:
    return {"changes": list(entries)}


def quota_of(kind: str, name: str, **values: Any) -> dict[str, Any]:
    return {kind: name, "pool": "local", "set": values}


def asked(stage: Stage, document: dict[str, Any], who: str = "alice") -> Impact:
    acting = stage.cast.people[who]
    return preview(acting=acting, draft=read_draft(acting, document), now=stage.clock.now())


GIVE_TO_ADS = changes(
    quota_of("department", "research", gpu=0),
    quota_of("project", "vision", gpu=0),
    quota_of("department", "product", gpu=4),
    quota_of("project", "ads", gpu=4),
)


@pytest.fixture
def full(stage: Stage) -> Stage:
    """Vision holds all four GPUs within its quota; ads waits for two."""
    stage.submit("held", roles=FOUR)
    stage.tick(2, seconds=10)
    stage.submit("rank", stage.cast.ads, roles=TWO)
    stage.tick(1, seconds=10)
    return stage


def test_it_tells_who_starts_who_gives_way_and_whose_share_changes(full: Stage) -> None:
    told = asked(full, GIVE_TO_ADS)
    assert [(entry["project"], entry["workload"], entry["gpus"]) for entry in told.starts] == [
        ("ads", "rank", 2)
    ]
    assert told.starts[0]["at_once"] is False
    (gone,) = told.evictions
    assert gone["summary"] == "vision/held would be reclaimed for ads/rank (4 GPUs, entire workload)"
    assert (gone["kind"], gone["gpus"]) == ("reclaim", 4)
    shares = {entry["name"]: (entry["before"]["gpu"], entry["after"]["gpu"]) for entry in told.shares}
    assert shares["ads"] == (0, 2)
    assert shares["vision"] == (4, 2)
    assert {quota["name"]: (quota["before"] or {}).get("gpu") for quota in told.quotas} == {
        "research": 4, "vision": 4, "product": None, "ads": None,
    }  # fmt: skip


def test_the_next_cycle_does_what_was_foreseen(full: Stage) -> None:
    told = asked(full, GIVE_TO_ADS)
    draft = read_draft(full.cast.alice, GIVE_TO_ADS)
    apply_draft(acting=full.cast.alice, draft=draft, expected=told.tag)
    full.tick()
    row = Eviction.objects.get()
    assert (row.workload_name, row.preemptor_name, row.rule) == ("held", "rank", told.evictions[0]["rule"])
    assert row.gpu_milli == told.evictions[0]["gpus"] * 1000


def test_nothing_is_written(full: Stage) -> None:
    before = [Quota.objects.count(), Audit.objects.count(), QuotaChange.objects.count()]
    with CaptureQueriesContext(connection) as captured:
        asked(full, GIVE_TO_ADS)
    wrote = [q["sql"] for q in captured if q["sql"].split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert wrote == []
    assert before == [Quota.objects.count(), Audit.objects.count(), QuotaChange.objects.count()]
    assert not Eviction.objects.exists()


def test_a_draft_that_changes_nothing_says_so(full: Stage) -> None:
    told = asked(full, changes(quota_of("project", "vision", gpu=4)))
    assert told.changes_nothing
    assert not (told.starts or told.evictions or told.shares or told.reasons)


def test_reasons_that_become_others_are_told(full: Stage) -> None:
    told = asked(full, changes(quota_of("project", "ads", gpu=0, limit={"gpu": 1})))
    (entry,) = told.reasons
    assert (entry["project"], entry["workload"]) == ("ads", "rank")
    assert entry["after"] == "ProjectLimit"
    assert "ads is limited to 1 GPU" in entry["message"]


def test_a_quota_can_be_removed_and_another_made_in_one_draft(full: Stage) -> None:
    told = asked(
        full,
        changes({"project": "vision", "pool": "local", "remove": True}, quota_of("project", "speech", gpu=2)),
    )
    assert [quota["after"] is None for quota in told.quotas] == [True, False]


@pytest.mark.parametrize(
    ("entry", "code", "part"),
    [
        (quota_of("project", "vision", gpu=6), "projects_above_department",
         "Project quotas in research add up to 6 GPUs, more than the department's own quota (4 GPUs)."),
        (quota_of("department", "product", gpu=9), "departments_above_pool",
         "Department quotas in local add up to 13 GPUs; the pool has 4 GPUs now."),
        (quota_of("project", "vision", gpu=1, limit={"gpu": 2}), "limit_below_held",
         "vision has 4 GPUs allocated, more than its limit of 2 GPUs."),
    ],
)  # fmt: skip
def test_odd_quotas_are_warned_of(full: Stage, entry: Any, code: str, part: str) -> None:
    found = {warned["code"]: warned["message"] for warned in asked(full, changes(entry)).warnings}
    assert part in found[code]


def test_a_quota_below_what_non_preemptible_work_holds_is_warned_of(stage: Stage) -> None:
    stage.submit("firm", roles=TWO, priority=100)
    stage.tick(2, seconds=10)
    (warned,) = asked(stage, changes(quota_of("project", "vision", gpu=1))).warnings
    assert warned["code"] == "below_firm"
    assert warned["message"].startswith(
        "vision has 2 GPUs allocated to non-preemptible workloads, more than its quota of 1 GPU."
    )


def test_it_is_for_those_who_may_set_these_quotas(full: Stage) -> None:
    vision, research = quota_of("project", "vision", gpu=2), quota_of("department", "research", gpu=2)
    assert asked(full, changes(vision), "bob").quotas
    for who, entries in (("carol", [vision]), ("dave", [vision]), ("bob", [vision, research])):
        with pytest.raises(Forbidden):
            asked(full, changes(*entries), who)
    with pytest.raises(Invalid) as refused:
        asked(full, changes(vision), "frank")
    assert refused.value.problems[0].path == "changes[0].project"


def test_of_work_that_one_may_not_see_only_numbers_are_told(full: Stage) -> None:
    """Bob, who runs research, holds vision back: what that gives to others is not his to see by name."""
    document = changes(quota_of("project", "vision", gpu=0, limit={"gpu": 0}))
    told = asked(full, document, "bob")
    assert told.hidden.shares == 2
    assert {entry["name"] for entry in told.shares} == {"research", "vision"}
    assert (told.hidden.reasons, told.reasons) == (1, []), "that ads waits for something else now"
    everything = asked(full, document)
    assert {entry["name"] for entry in everything.shares} == {"research", "vision", "product", "ads"}
    assert everything.hidden.shares == 0


def test_every_fault_of_a_draft_is_named_where_it_is(full: Stage) -> None:
    document = changes(
        {"project": "visoin", "pool": "local", "set": {"gpu": 1}},
        {"project": "vision", "pool": "moon", "set": {"gpu": -1, "colour": 1}},
        {"project": "vision", "department": "research", "pool": "local", "set": {}},
        {"project": "speech", "pool": "local"},
        {"project": "vision", "pool": "local", "set": {"gpu": 8, "limit": {"gpu": 4}}},
        quota_of("project", "vision", gpu=1),
        "nonsense",
    )
    with pytest.raises(Invalid) as refused:
        asked(full, document)
    found = {problem.path: problem.message for problem in refused.value.problems}
    assert found["changes[0].project"] == "no such project"
    assert {"changes[1].pool", "changes[1].set.gpu", "changes[1].set.colour", "changes[2]", "changes[3]",
            "changes[5]", "changes[6]"} <= found.keys()  # fmt: skip
    with pytest.raises(Invalid) as refused:
        asked(full, changes(quota_of("project", "vision", gpu=8, limit={"gpu": 4})))
    assert [problem.path for problem in refused.value.problems] == ["changes[0].set.gpu"]


def test_the_tag_names_the_versions_it_was_made_on(full: Stage) -> None:
    draft = read_draft(full.cast.alice, GIVE_TO_ADS)
    stored = compare(draft)
    assert tag_of(stored).split("-")[2:] == ["0.0", "0.0"]
    assert asked(full, GIVE_TO_ADS).tag == tag_of(stored)
