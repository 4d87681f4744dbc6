"""Tests that a quota preview matches the next cycle and stores nothing."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.core.errors import Forbidden, Invalid
from projects.models import Audit, Quota, QuotaChange
from projects.services.quotas.documents import read_draft
from projects.services.quotas.drafts import apply_draft, compare_with_stored_quotas, version_tag_before_draft
from scheduler.models import Eviction
from scheduler.reports.what_if.quota_preview import QuotaImpact, preview_draft
from tests.scheduler.stage import Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]
TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


def build_draft(*entries: Any) -> dict[str, Any]:
    return {"changes": list(entries)}


def quota_change(kind: str, name: str, **values: Any) -> dict[str, Any]:
    return {kind: name, "pool": "local", "set": values}


def preview_impact(stage: Stage, document: dict[str, Any], who: str = "alice") -> QuotaImpact:
    actor = stage.cast.people[who]
    return preview_draft(actor=actor, draft=read_draft(actor, document), now=stage.clock.now())


GIVE_TO_ADS = build_draft(
    quota_change("department", "research", gpu=0),
    quota_change("project", "vision", gpu=0),
    quota_change("department", "product", gpu=4),
    quota_change("project", "ads", gpu=4),
)


@pytest.fixture
def full_stage(stage: Stage) -> Stage:
    """Allocate all four GPUs to vision within its quota, and submit a two-GPU workload of ads."""
    stage.submit("held", roles=FOUR)
    stage.tick(2, seconds=10)
    stage.submit("rank", stage.cast.ads, roles=TWO)
    stage.tick(1, seconds=10)
    return stage


def test_quota_preview_lists_starts_evictions_and_changed_fair_shares(full_stage: Stage) -> None:
    impact = preview_impact(full_stage, GIVE_TO_ADS)
    assert [(entry["project"], entry["workload"], entry["gpus"]) for entry in impact.starts] == [
        ("ads", "rank", 2)
    ]
    assert impact.starts[0]["immediately"] is False
    (eviction,) = impact.evictions
    assert eviction["summary"] == "vision/held would be reclaimed for ads/rank (4 GPUs, entire workload)"
    assert (eviction["kind"], eviction["gpus"]) == ("reclaim", 4)
    shares = {entry["name"]: (entry["before"]["gpu"], entry["after"]["gpu"]) for entry in impact.shares}
    assert shares["ads"] == (0, 2)
    assert shares["vision"] == (4, 2)
    assert {quota["name"]: (quota["before"] or {}).get("gpu") for quota in impact.quotas} == {
        "research": 4, "vision": 4, "product": None, "ads": None,
    }  # fmt: skip


def test_quota_preview_matches_the_next_cycle(full_stage: Stage) -> None:
    impact = preview_impact(full_stage, GIVE_TO_ADS)
    draft = read_draft(full_stage.cast.alice, GIVE_TO_ADS)
    apply_draft(actor=full_stage.cast.alice, draft=draft, expected=impact.tag)
    full_stage.tick()
    row = Eviction.objects.get()
    assert (row.workload_name, row.preemptor_name, row.rule) == ("held", "rank", impact.evictions[0]["rule"])
    assert row.gpu_milli == impact.evictions[0]["gpus"] * 1000


def test_quota_preview_writes_nothing(full_stage: Stage) -> None:
    before = [Quota.objects.count(), Audit.objects.count(), QuotaChange.objects.count()]
    with CaptureQueriesContext(connection) as captured:
        preview_impact(full_stage, GIVE_TO_ADS)
    wrote = [q["sql"] for q in captured if q["sql"].split()[0] in ("INSERT", "UPDATE", "DELETE")]
    assert wrote == []
    assert before == [Quota.objects.count(), Audit.objects.count(), QuotaChange.objects.count()]
    assert not Eviction.objects.exists()


@pytest.mark.heavy
def test_quota_preview_reports_that_a_draft_has_no_effect(full_stage: Stage) -> None:
    impact = preview_impact(full_stage, build_draft(quota_change("project", "vision", gpu=4)))
    assert impact.changes_nothing
    assert not (impact.starts or impact.evictions or impact.shares or impact.reasons)


@pytest.mark.heavy
def test_quota_preview_lists_changed_pending_reasons(full_stage: Stage) -> None:
    impact = preview_impact(full_stage, build_draft(quota_change("project", "ads", gpu=0, limit={"gpu": 1})))
    (entry,) = impact.reasons
    assert (entry["project"], entry["workload"]) == ("ads", "rank")
    assert entry["after"] == "ProjectLimit"
    assert "ads is limited to 1 GPU" in entry["message"]


@pytest.mark.heavy
def test_one_draft_may_delete_and_create_quotas(full_stage: Stage) -> None:
    impact = preview_impact(
        full_stage,
        build_draft(
            {"project": "vision", "pool": "local", "remove": True}, quota_change("project", "speech", gpu=2)
        ),
    )
    assert [quota["after"] is None for quota in impact.quotas] == [True, False]


@pytest.mark.parametrize(
    ("entry", "code", "part"),
    [
        (quota_change("project", "vision", gpu=6), "projects_above_department",
         "Project quotas in research add up to 6 GPUs, more than the department's own quota (4 GPUs)."),
        (quota_change("department", "product", gpu=9), "departments_above_pool",
         "Department quotas in local add up to 13 GPUs; the pool has at most 8 GPUs."),
        (quota_change("project", "vision", gpu=1, limit={"gpu": 2}), "limit_below_allocated",
         "vision has 4 GPUs allocated, more than its limit of 2 GPUs."),
    ],
)  # fmt: skip
def test_inconsistent_quotas_cause_warnings(full_stage: Stage, entry: Any, code: str, part: str) -> None:
    messages = {
        warning["code"]: warning["message"]
        for warning in preview_impact(full_stage, build_draft(entry)).warnings
    }
    assert part in messages[code]


@pytest.mark.heavy
def test_quota_below_non_preemptible_allocation_causes_a_warning(stage: Stage) -> None:
    stage.submit("firm", roles=TWO, priority=100)
    stage.tick(2, seconds=10)
    (warning,) = preview_impact(stage, build_draft(quota_change("project", "vision", gpu=1))).warnings
    assert warning["code"] == "below_non_preemptible"
    assert warning["message"].startswith(
        "vision has 2 GPUs allocated to non-preemptible workloads, more than its quota of 1 GPU."
    )


def test_quota_preview_requires_permission_to_set_the_quotas(full_stage: Stage) -> None:
    vision, research = quota_change("project", "vision", gpu=2), quota_change("department", "research", gpu=2)
    assert preview_impact(full_stage, build_draft(vision), "bob").quotas
    for who, entries in (("carol", [vision]), ("dave", [vision]), ("bob", [vision, research])):
        with pytest.raises(Forbidden):
            preview_impact(full_stage, build_draft(*entries), who)
    with pytest.raises(Invalid) as rejected:
        preview_impact(full_stage, build_draft(vision), "frank")
    assert rejected.value.problems[0].path == "changes[0].project"


def test_quota_preview_counts_but_does_not_list_effects_on_hidden_workloads(full_stage: Stage) -> None:
    # Bob administers research and lowers vision's quota. He may not see other projects' workloads.
    document = build_draft(quota_change("project", "vision", gpu=0, limit={"gpu": 0}))
    impact = preview_impact(full_stage, document, "bob")
    assert impact.hidden.shares == 2
    assert {entry["name"] for entry in impact.shares} == {"research", "vision"}
    assert (impact.hidden.reasons, impact.reasons) == (1, []), "the changed reason of ads"
    everything = preview_impact(full_stage, document)
    assert {entry["name"] for entry in everything.shares} == {"research", "vision", "product", "ads"}
    assert everything.hidden.shares == 0


def test_every_error_in_a_quota_draft_names_its_path(full_stage: Stage) -> None:
    document = build_draft(
        {"project": "visoin", "pool": "local", "set": {"gpu": 1}},
        {"project": "vision", "pool": "moon", "set": {"gpu": -1, "colour": 1}},
        {"project": "vision", "department": "research", "pool": "local", "set": {}},
        {"project": "speech", "pool": "local"},
        {"project": "vision", "pool": "local", "set": {"gpu": 8, "limit": {"gpu": 4}}},
        quota_change("project", "vision", gpu=1),
        "nonsense",
    )
    with pytest.raises(Invalid) as rejected:
        preview_impact(full_stage, document)
    messages = {problem.path: problem.message for problem in rejected.value.problems}
    assert messages["changes[0].project"] == "does not exist"
    assert {"changes[1].pool", "changes[1].set.gpu", "changes[1].set.colour", "changes[2]", "changes[3]",
            "changes[5]", "changes[6]"} <= messages.keys()  # fmt: skip
    with pytest.raises(Invalid) as rejected:
        preview_impact(full_stage, build_draft(quota_change("project", "vision", gpu=8, limit={"gpu": 4})))
    assert [problem.path for problem in rejected.value.problems] == ["changes[0].set.gpu"]


def test_etag_contains_the_quota_versions(full_stage: Stage) -> None:
    draft = read_draft(full_stage.cast.alice, GIVE_TO_ADS)
    stored = compare_with_stored_quotas(draft)
    assert version_tag_before_draft(stored).split("-")[2:] == ["0.0", "0.0"]
    assert preview_impact(full_stage, GIVE_TO_ADS).tag == version_tag_before_draft(stored)
