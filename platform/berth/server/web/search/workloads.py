"""Search results about workloads: arrays, tasks of arrays, and lists of workloads by state or user."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.contrib.auth.models import User
from django.db.models import Exists, F, OuterRef
from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode

from berth.server.web.search.palette import SearchHit
from berth.server.web.states import TONES
from projects.actor import Actor
from projects.models import ArrayState, InferenceEngine, Phase, Workload, WorkloadArray, WorkloadKind
from projects.models.workloads import LIVE_PHASES
from projects.selectors import arrays, id_condition, workload_count, workloads
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from projects.web.arrays.progress import load_progress
from projects.web.workloads.listing.filters import filter_workloads, one_row_per_array, parse_filters

MAX_TASKS, MAX_USERS, MAX_NAMED = 6, 4, 5
MAX_CURRENT, MAX_CURRENT_ARRAYS = 6, 2  # workloads and arrays that an empty search lists
MAX_CANDIDATES = 50  # maximum number of recent live workloads that an empty search considers
RECENTLY = timedelta(days=1)
MIN_STATE_LETTERS = 4  # minimum length of a word that is matched as a prefix of a state
STATE_SYNONYMS = {
    "live": ("active",),
    "pending": ("queued", "waiting"),
    "unschedulable": ("impossible",),
    "evicted": ("preempted", "reclaimed"),
    "running": (),
    "suspended": ("paused",),
    "failed": ("failures", "crashed"),
    "completed": ("succeeded", "finished"),
    "cancelled": ("canceled",),
    "ended": (),
}
MINE = ("my", "mine")
FILLERS = {*MINE, "workload", "workloads", "jobs", "user", "users", "of", "by", "in", "the", "all"}
# The name of a task, such as `sweep-3`. Commands also accept `sweep[3]`.
TASK = re.compile(r"(?P<array>.+?)(?:-(?P<index>\d{1,9})|\[(?P<listed>\d{1,9})\])")


def workload_list_url(**query: str) -> str:
    return f"{reverse('workloads')}?{urlencode({key: value for key, value in query.items() if value})}"


def workload_state(workload: Workload) -> str:
    """Return the state to show in search results: the phase, or "unschedulable"."""
    can_start = workload.phase != Phase.PENDING or workload.reason != UNSCHEDULABLE
    return workload.phase if can_start else "unschedulable"


def workload_hit(row: Workload) -> SearchHit:
    path = reverse("workload", args=[row.pk])
    return SearchHit(row.name, path, "workloads", row.project.name, state=workload_state(row))


def current_workload_hits(actor: Actor, now: datetime, *, mine: bool) -> list[SearchHit]:
    """Return the latest live workloads and those that failed in the last day, most urgent first.

    With `mine`, return only the user's own. Engines of services are omitted.
    """
    rows, active = workloads(actor).filter(array=None), arrays(actor).filter(state=ArrayState.ACTIVE)
    if mine:
        rows, active = rows.filter(submitted_by=actor.user), active.filter(submitted_by=actor.user)
    # The queries do not sort by urgency, so that both can use indexes even if many workloads are pending.
    live = rows.filter(phase__in=LIVE_PHASES).order_by("-submitted_at", "-pk")[:MAX_CANDIDATES]
    failed = rows.filter(phase=Phase.FAILED, ended_at__gte=now - RECENTLY).order_by("-ended_at")
    listed = _without_added_engines([*live, *failed[:MAX_CURRENT]])
    latest = active.order_by("-submitted_at")[:MAX_CURRENT_ARRAYS]
    listed.sort(key=_urgency)
    return [*map(workload_hit, listed[:MAX_CURRENT]), *array_hits(list(latest))]


def _without_added_engines(rows: Sequence[Workload]) -> list[Workload]:
    keys = [row.pk for row in rows if row.kind == WorkloadKind.SERVICE]
    links = InferenceEngine.objects.filter(workload__in=keys).exclude(workload=F("service__workload"))
    added = set(links.order_by().values_list("workload", flat=True)) if keys else ()
    return [row for row in rows if row.pk not in added]


def _urgency(row: Workload) -> int:
    state = workload_state(row)
    urgent = ("unschedulable", Phase.FAILED, Phase.PENDING, Phase.RESERVED)
    return min(urgent.index(state), 2) if state in urgent else len(urgent)


def _row_hit(row: Workload, state: str) -> SearchHit:
    if row.array is None:
        return workload_hit(row)
    path = reverse("array", args=[row.array.pk])
    return SearchHit(
        row.array.name, path, "workloads", row.project.name, state=state if state in TONES else ""
    )


def all_matches_hit(actor: Actor, word: str) -> SearchHit:
    """Return a link to the list of all workloads that match the word, with the number of matches."""
    path = workload_list_url(state="all", search=word)
    rows = filter_workloads(actor, parse_filters(QueryDict(path.partition("?")[2]))).order_by()
    count = rows.aggregate(count=workload_count())["count"]
    return SearchHit(f"Show all {count:,} workloads", path, "workloads", f"matching “{word}”")


def array_hits(matching: Sequence[WorkloadArray]) -> Iterator[SearchHit]:
    progress = load_progress(matching) if matching else {}
    for row in matching:
        state = progress[row.pk].state
        yield SearchHit(row.name, reverse("array", args=[row.pk]), "workloads", row.project.name, state=state)


def task_hits(actor: Actor, words: Sequence[str]) -> Iterator[SearchHit]:
    """Yield the array tasks whose name or ID matches.

    If a word is the name of a task, all other words must occur in the name of its project.
    """
    by_id = reduce(or_, map(id_condition, words))
    for task in workloads(actor).filter(by_id, array__isnull=False)[:MAX_TASKS]:
        yield _task_hit(task)
    parts = extract_task_name(words)
    if parts is None:
        return
    name, index, others = parts
    rows = arrays(actor).filter(name__iexact=name)
    for word in others:
        rows = rows.filter(project__name__icontains=word)
    matching = list(rows.order_by("-submitted_at")[:MAX_TASKS])
    if not matching:
        return
    tasks = workloads(actor).filter(array__in=matching, array_index=index, superseded=False)
    for task in tasks.order_by("-submitted_at")[:MAX_TASKS]:
        yield _task_hit(task)


def _task_hit(task: Workload) -> SearchHit:
    path = reverse("workload", args=[task.pk])
    return SearchHit(task.name, path, "workloads", task.project.name, state=workload_state(task))


def extract_task_name(words: Sequence[str]) -> tuple[str, int, list[str]] | None:
    """Split the words at the first task name: return its array, its index and the other words.

    Return None if no word is a task name.
    """
    for at, word in enumerate(words):
        if match := TASK.fullmatch(word):
            return match["array"], int(match["index"] or match["listed"]), [*words[:at], *words[at + 1 :]]
    return None


def find_state(word: str) -> str:
    """Return the state that the word names or abbreviates, or an empty string."""
    word = word.lower()
    for state, synonyms in STATE_SYNONYMS.items():
        if word == state or word in synonyms:
            return state
        if len(word) >= MIN_STATE_LETTERS and state.startswith(word):
            return state
    return ""


def state_list_hits(actor: Actor, words: Sequence[str]) -> Iterator[SearchHit]:
    """If a word names a state, yield a link to the workloads in that state, then the latest of them.

    The other words are the list's search text, and "my" selects the user's own workloads. If no workload
    matches, there is no link.
    """
    state, named_by = next(((state, word) for word in words if (state := find_state(word))), ("", ""))
    if not state:
        return
    others = [word for word in words if word != named_by and word.lower() not in FILLERS]
    is_mine = any(word.lower() in MINE for word in words)
    text = " ".join(others)
    path = workload_list_url(state=state, mine="1" if is_mine else "", search=text)
    filters = parse_filters(QueryDict(path.partition("?")[2]))
    rows = filter_workloads(actor, filters).order_by()
    count = rows.aggregate(count=workload_count())["count"]
    if count or not text:
        title = f"My {state} workloads" if is_mine else f"{state.capitalize()} workloads"
        yield SearchHit(f"{title}{f' matching {text}' if text else ''} ({count:,})", path, "workloads")
    for row in one_row_per_array(rows).select_related("array").order_by("-since", "pk")[:MAX_NAMED]:
        yield _row_hit(row, state)


def user_list_hits(actor: Actor, words: Sequence[str]) -> Iterator[SearchHit]:
    """Yield a link to the workloads of each user whose name contains all words, except filler words."""
    names = [word for word in words if word.lower() not in FILLERS]
    if not names:
        return
    users = User.objects.filter(Exists(workloads(actor).filter(submitted_by=OuterRef("pk"))))
    for word in names:
        users = users.filter(username__icontains=word)
    for name in users.order_by("username").values_list("username", flat=True)[:MAX_USERS]:
        yield SearchHit(f"Workloads of {name}", workload_list_url(state="all", user=name), "access")
