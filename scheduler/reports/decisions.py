"""Decisions of scheduling cycles, restricted to what a user may see."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, F, Func, Q, QuerySet, Value

from berth.core.wording.words import format_count, format_ranges, join_words
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import Department
from projects.selectors import workloads
from scheduler.models import Cycle
from scheduler.reports.evictions.by_decision import RecordedEviction, evictions_by_decision
from scheduler.reports.evictions.rendering import capitalize_rule
from scheduler.reports.visibility import project_from_handle

KIND_TITLES = {
    "start": "Start",
    "grow": "Scale-up",
    "shrink": "Scale-down",
    "reserve": "Reservation",
    "reclaim": "Reclaim",
    "preempt": "Preemption",
    "consolidate": "Consolidation",
    "stale_gang": "Stop below minimum",
}
# Reason for a decision if neither the plan nor an eviction states one.
KIND_REASONS = {
    "start": "It fits within its queues' limits.",
    "grow": "Resources are free for replicas above its minimum.",
    "shrink": "Its replicas above the minimum are needed for other workloads.",
    "reserve": "Its resources are set aside until nodes have booted or evicted pods have stopped.",
    "reclaim": "Its queue reclaims resources that other queues hold over their quota or fair share.",
    "preempt": "It has a higher priority than the evicted workloads of its project.",
    "consolidate": "Moving pods together makes room for a workload that did not fit.",
    "stale_gang": "It ran fewer pods than its minimum for too long.",
}
NODES_SHOWN = 4
CYCLES_SEARCHED = 5000  # maximum number of cycles searched; reading a month's plans would take minutes


@dataclass(frozen=True, slots=True)
class DecisionFilters:
    kind: str = ""
    pool: str = ""
    project: str = ""
    workload: str = ""  # part of a workload name to search for

    def __bool__(self) -> bool:
        return bool(self.kind or self.pool or self.project or self.workload)


@dataclass(frozen=True, slots=True)
class NamedWorkload:
    """Workload that a decision refers to.

    `name` is empty if the workload is hidden from the user. `id` is None if the workload was deleted.
    """

    project: str
    name: str
    id: UUID | None
    array: tuple[UUID, str] | None = None


@dataclass(frozen=True, slots=True)
class DecisionVictim:
    workload: NamedWorkload
    pods: int
    eviction_id: int | None
    rule: str = ""
    kind: str = ""  # eviction kind, as on the Evictions page


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """Step of a decision that starts, stops or reserves one workload's pods on one node."""

    action: str
    workload: NamedWorkload
    pods: str
    node: str
    devices: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Applied bundle of a plan.

    Victims that are hidden from the user are included only if the user may see the preemptor.
    """

    kind: str
    title: str
    pool: str
    workload: NamedWorkload
    effect: str
    message: str
    victims: list[DecisionVictim]
    steps: list[DecisionStep]
    summary: str
    reason: str


@dataclass(frozen=True, slots=True)
class CycleDecisions:
    """Cycle with the decisions that the user may see.

    `hidden` is the number of other decisions, and `stale` lists each dropped bundle with the reason.
    """

    row: Cycle
    decisions: list[Decision]
    hidden: int = 0
    stale: list[tuple[str, str]] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        return self.row.observe_ms + self.row.decide_ms + self.row.commit_ms


@dataclass(frozen=True, slots=True)
class _SubmittedWorkload:
    """Submitted workload. `array` is the ID and name of its array, if any."""

    at: datetime
    id: UUID
    array: tuple[UUID, str] | None


class _DecisionRedaction:
    """Rules that hide other projects' decisions. `projects` is None if the user may see all projects."""

    def __init__(self, actor: Actor) -> None:
        self.projects: dict[str, datetime] | None = None
        if not is_platform_admin(actor):
            self.projects = dict(visible_projects(actor).values_list("name", "created_at"))

    def can_see(self, handle: str, at: datetime) -> bool:
        if self.projects is None:
            return True
        created = self.projects.get(project_from_handle(handle))
        return created is not None and created <= at


def cycles_with_decisions(
    actor: Actor, filters: DecisionFilters, since: datetime | None = None, until: datetime | None = None
) -> QuerySet[Cycle]:
    """Return the period's cycles with at least one visible decision that matches the filters.

    Only the latest CYCLES_SEARCHED cycles are searched. Without filters, platform admins get all cycles with
    decisions, dropped bundles or notes.
    """
    redaction = _DecisionRedaction(actor)
    rows = Cycle.objects.defer("snapshot")
    if since is not None:
        rows = rows.filter(at__gte=since)
    if until is not None:
        rows = rows.filter(at__lte=until)
    if redaction.projects is None and not filters:
        return rows.filter(Q(applied__gt=0) | Q(stale__gt=0) | ~Q(notes=[]))
    if redaction.projects is not None and not redaction.projects:
        return rows.none()
    rows = rows.filter(applied__gt=0)
    # Use a separate query, because PostgreSQL might otherwise read all plans first.
    earlier = rows.order_by("-pk").values_list("pk", flat=True)[CYCLES_SEARCHED : CYCLES_SEARCHED + 1].first()
    if earlier is not None:
        rows = rows.filter(pk__gt=earlier)
    path = _bundle_json_path(redaction, filters)
    matches = Func(
        F("plan"),
        Value(path),
        template="jsonb_path_exists(%(expressions)s::jsonpath)",
        output_field=BooleanField(),
    )
    return rows.filter(matches)


def _bundle_json_path(redaction: _DecisionRedaction, filters: DecisionFilters) -> str:
    tests = [f"@.{key} == {json.dumps(value)}"
             for key, value in (("kind", filters.kind), ("pool", filters.pool)) if value]  # fmt: skip
    visible = "" if redaction.projects is None else _project_pattern(redaction.projects)
    if visible:
        tests.append(_workload_names_condition(visible))
    if filters.project:
        tests.append(_workload_names_condition(_project_pattern([filters.project])))
    if filters.workload:
        name_test = f'@ like_regex {json.dumps(filters.workload)} flag "iq"'
        tests.append(_workload_names_condition(f"{visible} && {name_test}" if visible else name_test))
    return f"$.bundles[*] ? ({' && '.join(tests)})"


def _project_pattern(projects: Iterable[str]) -> str:
    names = "|".join(re.escape(name) for name in projects)
    return f"@ like_regex {json.dumps(f'^({names})/')}"


def _workload_names_condition(test: str) -> str:
    """Return a JSONPath condition that is true if `test` matches any workload of a bundle."""
    return f"(exists(@.workload ? ({test})) || exists(@.steps[*].workload ? ({test})))"


def render_cycles(actor: Actor, rows: Sequence[Cycle], filters: DecisionFilters) -> list[CycleDecisions]:
    """Return the cycles with their matching decisions, redacting the names of hidden workloads."""
    redaction = _DecisionRedaction(actor)
    handles = {
        handle for row in rows for bundle in _stored_bundles(row) for handle in _workload_handles(bundle)
    }
    submissions = _submissions_by_name(actor, handles)
    recorded_evictions = evictions_by_decision(actor, [row.pk for row in rows])
    departments = set(Department.objects.values_list("name", flat=True))
    return [
        _render_cycle(row, redaction, filters, submissions, recorded_evictions, departments) for row in rows
    ]


def _render_cycle(
    row: Cycle,
    redaction: _DecisionRedaction,
    filters: DecisionFilters,
    submissions: Mapping[str, list[_SubmittedWorkload]],
    recorded_evictions: Mapping[tuple[int | None, str], RecordedEviction],
    departments: Collection[str],
) -> CycleDecisions:
    def named_workload(handle: str) -> NamedWorkload:
        project, _, name = handle.partition("/")
        if not redaction.can_see(handle, row.at):
            return NamedWorkload(project, "", None)
        earlier = [each for each in submissions.get(handle, ()) if each.at <= row.at]
        return NamedWorkload(project, name, *((earlier[-1].id, earlier[-1].array) if earlier else (None,)))

    bundles = _stored_bundles(row)
    visible = [
        b for b in bundles if any(redaction.can_see(handle, row.at) for handle in _workload_handles(b))
    ]
    chosen = [b for b in visible if _matches_filters(b, filters, redaction, row.at)]
    is_complete = redaction.projects is None and not filters
    stale = (row.plan or {}).get("stale", []) if is_complete else []
    return CycleDecisions(
        row=row,
        decisions=[
            _render_bundle(
                bundle, {handle: named_workload(handle) for handle in _workload_handles(bundle)},
                row.pk, recorded_evictions, departments,
                is_visible=redaction.can_see(bundle["workload"], row.at),
            )
            for bundle in chosen
        ],
        hidden=len(bundles) - len(visible),
        stale=[(bundle["workload"], bundle.get("why", "")) for bundle in stale],
    )  # fmt: skip


def _matches_filters(
    bundle: Mapping[str, Any], filters: DecisionFilters, redaction: _DecisionRedaction, at: datetime
) -> bool:
    handles, text = _workload_handles(bundle), filters.workload.lower()
    return (
        filters.kind in ("", bundle["kind"])
        and filters.pool in ("", bundle["pool"])
        and (not filters.project or any(project_from_handle(each) == filters.project for each in handles))
        and (not text or any(text in each.lower() and redaction.can_see(each, at) for each in handles))
    )


def _render_bundle(
    bundle: Mapping[str, Any],
    names: Mapping[str, NamedWorkload],
    cycle: int,
    recorded_evictions: Mapping[tuple[int | None, str], RecordedEviction],
    departments: Collection[str],
    *,
    is_visible: bool,
) -> Decision:
    handle = bundle["workload"]
    placed = [step for step in bundle["steps"] if step["workload"] == handle and step["do"] != "stop"]
    stopped = Counter(
        step["workload"]
        for step in bundle["steps"]
        if step["do"] == "stop" and (step["workload"] != handle or not placed)
    )
    message = bundle.get("message", "") if is_visible else ""
    victims = [
        DecisionVictim(names[each], pods, *recorded_evictions.get((cycle, each), (None, "", "")))
        for each, pods in stopped.items()
        if is_visible or names[each].name
    ]
    reason = message or next((victim.rule for victim in victims if victim.rule), "")
    return Decision(
        kind=bundle["kind"],
        title=KIND_TITLES.get(bundle["kind"], bundle["kind"]),
        pool=bundle["pool"],
        workload=names[handle],
        effect=_effect_phrase(placed, evicts=bool(stopped)),
        message=message,
        victims=victims,
        steps=list(_group_steps(bundle["steps"], names)),
        summary=_summary(bundle, names[handle], placed, victims),
        reason=capitalize_rule(reason, {*departments, *(name for each in names for name in each.split("/"))})
        or KIND_REASONS.get(bundle["kind"], ""),
    )


def _summary(
    bundle: Mapping[str, Any],
    workload: NamedWorkload,
    placed: Sequence[Mapping[str, Any]],
    victims: Sequence[DecisionVictim],
) -> str:
    """Return a sentence such as "Berth started 4 pods of vision/train on node-1 in pool train."."""
    name, parts = _display_name(workload), []
    if placed:
        verb = "reserved resources for" if all(step["do"] == "reserve" for step in placed) else "started"
        devices = sum(len(step["devices"]) for step in placed)
        using = f" with {format_count(devices, 'device')}" if devices else ""
        pods = format_count(len(placed), "pod")
        parts.append(f"{verb} {pods} of {name} on {_nodes_phrase(placed)} in pool {bundle['pool']}{using}")
    stops = [f"{format_count(victim.pods, 'pod')} of {_display_name(victim.workload)}" for victim in victims]
    if stops:
        parts.append(f"stopped {join_words(stops)}")
    if not parts:
        return f"Berth changed {name} in pool {bundle['pool']}."
    return f"Berth {' and '.join(parts)}."


def _display_name(workload: NamedWorkload) -> str:
    if workload.name:
        return f"{workload.project}/{workload.name}"
    return f"a workload in project {workload.project}"


def _group_steps(
    steps: Iterable[Mapping[str, Any]], names: Mapping[str, NamedWorkload]
) -> Iterator[DecisionStep]:
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for step in steps:
        if names[step["workload"]].name:
            key = (step["do"], step["workload"], step["role"], step["node"])
            groups.setdefault(key, []).append(step)
    for (action, workload, role, node), of_node in groups.items():
        pods = format_ranges(step["index"] for step in of_node)
        devices = format_ranges(device for step in of_node for device in set(step["devices"]))
        yield DecisionStep(action, names[workload], f"{role} {pods}", node, devices)


def _effect_phrase(placed: Sequence[Mapping[str, Any]], *, evicts: bool) -> str:
    if not placed:
        return ""
    is_reserved = all(step["do"] == "reserve" for step in placed)
    pods, nodes = format_count(len(placed), "pod"), _nodes_phrase(placed)
    if is_reserved and evicts:
        return f"{pods} on {nodes} after the eviction"
    return f"{pods}{' reserved' if is_reserved else ''} on {nodes}"


def _nodes_phrase(placed: Iterable[Mapping[str, Any]]) -> str:
    nodes = list(dict.fromkeys(step["node"] for step in placed))
    shown = ", ".join(nodes[:NODES_SHOWN])
    return f"{shown} and {len(nodes) - NODES_SHOWN} more nodes" if len(nodes) > NODES_SHOWN else shown


def _stored_bundles(row: Cycle) -> list[dict[str, Any]]:
    return list((row.plan or {}).get("bundles", ()))


def _workload_handles(bundle: Mapping[str, Any]) -> list[str]:
    """Return the bundle's workloads as `project/name`, the placed workload first."""
    return list(dict.fromkeys((bundle["workload"], *(step["workload"] for step in bundle["steps"]))))


def _submissions_by_name(actor: Actor, handles: Iterable[str]) -> dict[str, list[_SubmittedWorkload]]:
    pairs = [handle.partition("/")[::2] for handle in handles]
    rows = workloads(actor).filter(
        project__name__in={project for project, _ in pairs}, name__in={name for _, name in pairs}
    )
    submissions: dict[str, list[_SubmittedWorkload]] = {}
    values = rows.order_by("submitted_at").values_list(
        "pk", "project__name", "name", "submitted_at", "array_id", "array__name"
    )
    for pk, project, name, submitted_at, array, array_name in values:
        submission = _SubmittedWorkload(submitted_at, pk, (array, array_name) if array else None)
        submissions.setdefault(f"{project}/{name}", []).append(submission)
    return submissions
