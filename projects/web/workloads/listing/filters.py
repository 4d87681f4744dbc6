"""Filters of the workload list."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.db.models.expressions import CombinedExpression
from django.http import QueryDict
from django.utils import timezone

from berth.core.problems import Problem
from berth.core.wording.words import format_count
from berth.db.queries.known_names import NameColumn, unknown_value_problem
from projects.actor import Actor
from projects.known_names import unknown_pool_problem, unknown_project_problem, unknown_user_problem
from projects.known_words import REASONS, RESERVED
from projects.models import ArrayState, Phase, Workload, WorkloadKind
from projects.models.workloads import ENDED_PHASES, HAS_LABELS, LIVE_PHASES
from projects.pending_reasons import reason_condition
from projects.selectors import id_condition, workloads
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE_REASON
from projects.web.workloads.listing.engine_rows import only_folded_engines

STATES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "live": ("Live", LIVE_PHASES),
    "pending": ("Pending", (Phase.PENDING, Phase.RESERVED)),
    "running": ("Running", (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)),
    "suspended": ("Suspended", (Phase.SUSPENDED,)),
    "ended": ("Ended", ENDED_PHASES),
    "all": ("All", tuple(Phase)),
}
UNSCHEDULABLE, EVICTED = "unschedulable", "evicted"  # substates of pending workloads
PARTS: Mapping[str, tuple[str, ...]] = {  # substates of each state
    "pending": (UNSCHEDULABLE, EVICTED),
    "ended": ENDED_PHASES,
}
LISTED_PARTS = (UNSCHEDULABLE, Phase.FAILED)  # substates with a tab (UNSCHEDULABLE only if not empty)
# Periods for the filters by first start and by end.
PERIODS: Mapping[str, tuple[str, timedelta]] = {
    "24h": ("Last 24 hours", timedelta(hours=24)),
    "7d": ("Last 7 days", timedelta(days=7)),
}

PART_CONDITIONS: Mapping[str, Q] = {
    UNSCHEDULABLE: Q(phase=Phase.PENDING, reason=UNSCHEDULABLE_REASON),
    EVICTED: Q(phase=Phase.PENDING, preemptions__gt=0),
    **{phase: Q(phase=phase) for phase in ENDED_PHASES},
}


@dataclass(frozen=True)
class WorkloadFilters:
    """Filters from the page's query parameters. Invalid values are ignored."""

    state: str
    project: str
    pool: str
    kind: str
    reason: str
    search: str
    mine: bool
    started: str
    ended: str = ""
    user: str = ""

    @property
    def is_filtered(self) -> bool:
        return any(
            (
                self.project, self.pool, self.kind, self.reason, self.search, self.mine, self.started,
                self.ended, self.user,
            )
        )  # fmt: skip


def parse_filters(query: QueryDict) -> WorkloadFilters:
    state = query.get("state", "live")
    kind = query.get("kind", "")
    return WorkloadFilters(
        state=state if state in STATES or state in PART_CONDITIONS else "live",
        project=_clean_text(query.get("project", "")),
        pool=_clean_text(query.get("pool", "")),
        kind=kind if kind in WorkloadKind.values else "",
        reason=_clean_text(query.get("reason", "")),
        search=_clean_text(query.get("search", "")).strip(),
        mine=query.get("mine") == "1",
        started=started if (started := query.get("started", "")) in PERIODS else "",
        ended=ended if (ended := query.get("ended", "")) in PERIODS else "",
        user=_clean_text(query.get("user", "")),
    )


def filter_workloads(
    actor: Actor, filters: WorkloadFilters, *, any_state: bool = False, each_task: bool = False
) -> QuerySet[Workload]:
    """Return the workloads that match the filters.

    For an array's tasks, the state filter applies to the state of the array or, with `each_task`, to that of
    each task.
    """
    rows = workloads(actor)
    if not any_state and filters.state != "all":
        rows = rows.filter((phase_condition if each_task else state_condition)(filters.state))
    exact: dict[str, Any] = {"project__name": filters.project, "kind": filters.kind}
    rows = rows.filter(**{column: value for column, value in exact.items() if value})
    if filters.reason:
        rows = rows.filter(reason_condition(filters.reason))
    if filters.pool:
        rows = rows.filter(pools__contains=[filters.pool])
    if filters.mine:
        rows = rows.filter(submitted_by=actor.user)
    if filters.user:
        rows = rows.filter(submitted_by__username=filters.user)
    if filters.started:
        rows = rows.filter(first_started_at__gte=timezone.now() - PERIODS[filters.started][1])
    if filters.ended:
        rows = rows.filter(_ended_since_condition(timezone.now() - PERIODS[filters.ended][1]))
    if filters.search:
        rows = rows.filter(_search_condition(filters.search))
    return rows


def unknown_name_problems(actor: Actor, filters: WorkloadFilters) -> list[Problem | None]:
    return [
        unknown_project_problem(actor, filters.project),
        unknown_pool_problem(actor, filters.pool),
        unknown_user_problem(actor, filters.user),
        unknown_value_problem(
            "reason", filters.reason, (*REASONS, RESERVED), NameColumn(workloads(actor), "reason")
        ),
    ]


def one_row_per_array(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Return the rows with only one task of each array: the first attempt of its first task."""
    tasks = rows.filter(array__isnull=False).order_by("array_id", "array_index", "attempt")
    return rows.filter(Q(array__isnull=True) | Q(pk__in=tasks.distinct("array_id").values("pk")))


@dataclass(frozen=True, slots=True)
class StateCount:
    """Number of workloads in one state, as the list shows them, and how many have reserved resources.

    Inference engines that are folded under their service do not count.
    """

    state: str
    title: str
    count: int
    reserved: int = 0

    @property
    def begins_group(self) -> bool:
        """Whether the tab begins a group. The other tabs of the group count parts of the first one."""
        return self.state in ("ended", "all")

    @property
    def phrase(self) -> str:
        """The numbers as text, such as "6 workloads, 1 of them reserved"."""
        return f"{format_count(self.count, 'workload')}, {self.reserved} of them reserved"


def count_by_state(actor: Actor, filters: WorkloadFilters) -> list[StateCount]:
    """Count the matching rows in each state, ignoring the filter by state.

    Unschedulable rows also count as pending, and failed rows as ended. All rows that have not ended count as
    live.
    """
    titles = dict[str, str]()
    for word, (title, _) in STATES.items():
        titles[word] = title
        titles |= {
            part: part.capitalize()
            for part in PARTS.get(word, ())
            if part in LISTED_PARTS or part == filters.state
        }
    counts = {word: state_count(word) for word in titles}
    reserved = state_count("pending", Q(phase=Phase.RESERVED))
    rows = filter_workloads(actor, filters, any_state=True).order_by()
    by_state = rows.aggregate(**counts, reserved=reserved)
    folded = only_folded_engines(rows).aggregate(
        **{word: Count("pk", filter=phase_condition(word)) for word in titles}
    )
    return [
        StateCount(
            word,
            title,
            by_state[word] - folded[word],
            by_state["reserved"] if word == "pending" else 0,
        )
        for word, title in titles.items()
        if word in (*STATES, Phase.FAILED) or by_state[word] or filters.state == word
    ]


def state_condition(state: str) -> Q:
    """Return a condition for workloads in a state, and for all tasks of arrays in that state.

    An active array is running if any task is running, otherwise pending if any task is pending. The states
    `unschedulable` and `evicted` select only the tasks in that state.
    """
    if state == "all":
        return Q()
    return _single_condition(state) | _array_condition(state)


def state_count(state: str, condition: Q | None = None) -> CombinedExpression:
    """Return an aggregate that counts the matching workloads and arrays in a state."""
    matching = condition or Q()
    return Count("pk", filter=_single_condition(state) & matching) + Count(
        "array", filter=_array_condition(state) & matching, distinct=True
    )


def _single_condition(state: str) -> Q:
    """Return a condition for workloads that are in a state and belong to no array."""
    return Q(phase_condition(state), array__isnull=True)


def _array_condition(state: str) -> Q:
    """Return a condition for all tasks of the arrays that are in a state."""
    if state in PARTS["pending"]:
        return _array_condition("pending") & PART_CONDITIONS[state]
    if state in ENDED_PHASES:
        return Q(array__state=state)
    of_arrays = Q(array__isnull=False)
    if state == "all":
        return of_arrays
    if state == "ended":
        return of_arrays & ~Q(array__state=ArrayState.ACTIVE)
    of_arrays &= Q(array__state=ArrayState.ACTIVE)
    if state in ("pending", "suspended"):
        of_arrays &= ~Q(array__in=_array_ids_in_state("running"))
    if state == "suspended":
        of_arrays &= ~Q(array__in=_array_ids_in_state("pending"))
    if state in ("pending", "running"):
        of_arrays &= Q(array__in=_array_ids_in_state(state))
    return of_arrays


def failed_since_condition(at: datetime) -> Q:
    """Return a condition for the workloads and arrays that have failed since a time."""
    return state_condition(Phase.FAILED) & _ended_since_condition(at)


def _ended_since_condition(at: datetime) -> Q:
    return Q(array__isnull=True, ended_at__gte=at) | Q(array__ended_at__gte=at)


def phase_condition(state: str) -> Q:
    """Return a condition for workloads, or individual tasks of arrays, in a state."""
    if state in PART_CONDITIONS:
        return PART_CONDITIONS[state]
    return Q(phase__in=STATES[state][1])


def _array_ids_in_state(state: str) -> QuerySet[Workload, Any]:
    tasks = Workload.objects.filter(array__isnull=False, phase__in=STATES[state][1])
    return tasks.order_by().values("array")


def _search_condition(words: str) -> Q:
    """Return a condition for a search text: a label such as key=value, part of a name, or the start
    of an ID.
    """
    key, equals, value = words.partition("=")
    if equals and key:
        return HAS_LABELS & Q(labels__contains={key: value})
    return (
        Q(name__icontains=words)
        | Q(project__name__icontains=words)
        | Q(submitted_by__username__icontains=words)
        | id_condition(words)
        | id_condition(words, "array")
    )


def _clean_text(text: str) -> str:
    return text.replace("\x00", "")[:200]
