"""Tests that idle rules warn workloads with idle GPUs and then suspend them, exactly once."""

from typing import Any

import pytest

from berth.core.errors import Forbidden, Invalid
from berth.core.idle_rule import IdleRule, normalize_rule, parse_text
from pools.models import NodePool
from projects.models import Audit, Delivery, Event, IdleWarning, Project, Workload
from projects.queries.idle_rules import idle_status
from projects.services import tenants, workloads
from projects.services.notifications.subscriptions import subscribe
from scheduler.loop.reconcile.idle_rules import IDLE_RULES_INTERVAL
from scheduler.reports.explanations.workload import explain
from tests.scheduler.measured_workload import SAMPLE_SECONDS, MeasuredWorkload
from tests.scheduler.stage import Stage

RULE = "below=10%,after=2m,action=suspend,grace=2m,warmup=0s"
CPU_ONLY = {"name": "monitor", "replicas": 1, "cpu": 1}
GPU = {"name": "worker", "replicas": 2, "gpu": 1, "cpu": 1}


def set_rule(stage: Stage, text: str) -> None:
    NodePool.objects.filter(pk=stage.cast.pool.pk).update(idle_rule=normalize_rule(parse_text(text)))


def run_at_utilization(measured_workload: MeasuredWorkload, minutes: float, *busy: int | None) -> None:
    """Give the node's GPUs this utilization for some minutes, with a tick after each measurement."""
    for _ in range(round(minutes * 60 / SAMPLE_SECONDS)):
        measured_workload.gpus(*busy)
        measured_workload.pass_time()
        measured_workload.stage.loop.idle_rules_at = None
        measured_workload.stage.loop.tick()


def kinds(workload: Workload) -> list[str]:
    return [kind for kind in events(workload) if kind.startswith("idle")]


def events(workload: Workload) -> list[str]:
    rows = Event.objects.filter(workload_id=workload.pk).order_by("pk")
    return list(rows.values_list("kind", flat=True))


@pytest.fixture
def measured_workload(stage: Stage) -> MeasuredWorkload:
    return MeasuredWorkload(stage, [GPU, CPU_ONLY])


@pytest.mark.heavy
def test_idle_workload_is_suspended_once_after_a_warning_despite_restarts(
    stage: Stage, measured_workload: MeasuredWorkload
) -> None:
    cast, workload = stage.cast, measured_workload.workload
    subscribe(actor=cast.carol, scope=cast.vision, to="v@example.org", events=["idle"])
    set_rule(stage, RULE)
    assert "rule of pool local" in explain(cast.dave, workload).idle
    run_at_utilization(measured_workload, 1.75, 9, 0)
    assert kinds(workload) == []
    run_at_utilization(measured_workload, 0.5, 9, 0)
    warning = IdleWarning.objects.get()
    assert "will be suspended at" in warning.message
    assert idle_status(Workload.objects.get(pk=workload.pk)).sentence == warning.message

    stage.loop = stage.new_loop()
    run_at_utilization(measured_workload, 1, 0, 0)
    assert kinds(workload) == ["idle_warning"], "a new scheduler repeated the warning"
    run_at_utilization(measured_workload, 0.25, 0, 60)
    assert kinds(workload) == ["idle_warning", "idle_warning_withdrawn"]
    run_at_utilization(measured_workload, 2.25, 0, 0)
    assert IdleWarning.objects.get().since > warning.since

    stage.loop = stage.new_loop()
    run_at_utilization(measured_workload, 2.5, 0, 0)
    assert stage.phase(workload) == "suspended"
    assert (workload.reason, workload.next_phase) == ("IdleGpus", "")
    assert kinds(workload) == ["idle_warning", "idle_warning_withdrawn", "idle_warning"]
    entry = Audit.objects.get(action="suspend_idle")
    assert (entry.object_id, entry.project_id) == (str(workload.pk), cast.vision.pk)
    numbers = entry.after or {}
    assert (numbers["rule"], numbers["rule_of"], numbers["gpus"]) == (RULE, "pool local", 2)
    assert 0 <= numbers["mean_percent"] < 10
    assert not IdleWarning.objects.exists()
    reasons = (
        Delivery.objects.filter(to="v@example.org").order_by("pk").values_list("content__reason", flat=True)
    )
    assert list(reasons) == ["IdleWarning", "IdleWarning", "IdleGpus"]


def test_workload_is_not_idle_if_it_is_busy_or_unmeasured_or_exempt_or_warming_up(
    stage: Stage, measured_workload: MeasuredWorkload
) -> None:
    workload, vision = measured_workload.workload, stage.cast.vision
    set_rule(stage, RULE)
    run_at_utilization(measured_workload, 3, None, 0)
    run_at_utilization(measured_workload, 3, None, None)
    run_at_utilization(measured_workload, 3, 0, 90)
    assert kinds(workload) == [], "one GPU was busy or not measured"
    Project.objects.filter(pk=vision.pk).update(idle_rule=normalize_rule({"action": "none"}))
    run_at_utilization(measured_workload, 3, 0, 0)
    fresh = Workload.objects.get(pk=workload.pk)
    assert (kinds(workload), explain(stage.cast.dave, fresh).idle) == ([], "")
    Project.objects.filter(pk=vision.pk).update(idle_rule=normalize_rule(parse_text(f"{RULE},warmup=1h")))
    run_at_utilization(measured_workload, 1, 0, 0)
    assert kinds(workload) == [], "the pods are warming up"
    Project.objects.filter(pk=vision.pk).update(
        idle_rule=normalize_rule({"below": "10%", "after": "2m", "warmup": 0})
    )
    run_at_utilization(measured_workload, 0.5, 0, 0)
    assert kinds(workload) == ["idle_warning"], "the project's rule replaces the pool's"
    assert IdleWarning.objects.get().suspend_at is None
    stage.clock.advance(200)
    stage.loop.idle_rules_at = None
    stage.loop.tick()
    assert kinds(workload) == ["idle_warning"], "old measurements neither suspend nor withdraw"
    workloads.suspend(actor=stage.cast.alice, workload=workload, now=stage.clock.now())
    stage.tick(3, seconds=IDLE_RULES_INTERVAL.total_seconds())
    assert not IdleWarning.objects.exists()
    assert stage.phase(workload) == "suspended"


def test_only_platform_admins_can_set_a_projects_idle_rule(stage: Stage) -> None:
    cast, changes = stage.cast, {"idle_rule": {"action": "none"}}
    with pytest.raises(Forbidden):
        tenants.edit_project(actor=cast.bob, project=cast.vision, changes=changes)
    edited = tenants.edit_project(actor=cast.alice, project=cast.vision, changes=changes)
    assert edited.idle_rule["action"] == "none"


def test_formatted_idle_rule_parses_to_the_same_rule() -> None:
    for rule in (IdleRule(), IdleRule(20, 90, "suspend", 5400, 0), IdleRule(action="none")):
        assert IdleRule(**normalize_rule(parse_text(rule.text))) == rule


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"belwo": 5}, "idle_rule.belwo: unknown key; received 'belwo'. Did you mean `below`?"),
        (
            {"below": "0%"},
            "idle_rule.below: is not a valid percentage; received '0%'; allowed: 1 to 100 percent",
        ),
        ({"below": True}, "idle_rule.below: is not a valid percentage"),
        ({"after": "soon"}, "idle_rule.after: is not a valid duration; received 'soon'; allowed: 1m to 168h"),
        ({"grace": 0}, "idle_rule.grace: is not a valid duration; received 0"),
        (
            {"action": "suspnd"},
            "idle_rule.action: is not a valid action; received 'suspnd'. Did you mean `suspend`?",
        ),
        ("always", "idle_rule: is not a mapping; received 'always'"),
    ],
)
def test_error_for_an_invalid_idle_rule_names_the_key_and_the_allowed_values(rule: Any, problem: str) -> None:
    with pytest.raises(Invalid) as rejected:
        normalize_rule(rule)
    assert str(rejected.value.problems[0]).startswith(problem)
