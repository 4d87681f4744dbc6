"""Actions, and pages filtered by one project or pool, as search results."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any
from urllib.parse import urlsplit

from django.db.models import Q, QuerySet
from django.urls import Resolver404, ResolverMatch, resolve, reverse
from django.utils.http import urlencode

from projects.access import (
    Action,
    administered_departments,
    has_admin_role,
    is_platform_admin,
    may,
    may_submit_anywhere,
    visible_pools,
)
from projects.actor import Actor
from projects.models import Phase, Schedule, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES, LIVE_PHASES
from projects.selectors import arrays, projects, schedules, workloads
from projects.services.arrays import TaskCounts, count_tasks_by_array
from projects.services.schedules import may_change
from projects.services.workloads import EDITABLE_PHASES, managed_workloads
from projects.web.workloads.actions import allowed_actions, bulk_actions

MIN_VERB_LETTERS = 3
MIN_LAST_VERB_LETTERS = 4  # minimum length of a verb that follows a name
VERBS = (
    "cancel", "clone", "copy", "delete", "edit", "log", "pause", "resubmit", "resume", "retry", "run",
    "suspend",
)  # fmt: skip
# First words of an action's title, for verbs that the title does not contain.
TITLE_STARTS: Mapping[str, str] = {"clone": "edit a copy", "copy": "edit a copy", "log": "show log"}
# Workload phases to which each verb applies.
PHASES_BY_VERB: Mapping[str, Collection[str]] = {
    "cancel": LIVE_PHASES,
    "suspend": LIVE_PHASES,
    "resume": (Phase.SUSPENDED, Phase.STOPPING),
    "delete": ENDED_PHASES,
    "resubmit": ENDED_PHASES,
}


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Search result: its link target, its project or pool, and its state.

    With `in_dialog`, the target is a form that opens on the current page. With `switches_theme`, there is no
    target. `is_danger` marks actions that end or delete something. If `tone` is set, the state is shown
    unchanged.
    """

    title: str
    path: str
    icon: str
    place: str = ""
    in_dialog: bool = False
    switches_theme: bool = False
    state: str = ""
    tone: str = ""
    is_action: bool = False
    is_danger: bool = False


def _allow_everyone(actor: Actor) -> bool:
    return True


def _has_password(actor: Actor) -> bool:
    return actor.user is not None and actor.user.has_usable_password()


def _administers_departments(actor: Actor) -> bool:
    return administered_departments(actor).exists()


# Title, route, icon and permission of each form.
FORMS: tuple[tuple[str, str, str, Callable[[Actor], bool]], ...] = (
    ("Submit workload", "submit", "submit", may_submit_anywhere),
    ("Create schedule", "schedule-new", "schedules", may_submit_anywhere),
    ("Create node pool", "pool-new", "pools", is_platform_admin),
    ("Create department", "department-new", "quotas", is_platform_admin),
    ("Create quota group", "quota-group-new", "quotas", is_platform_admin),
    ("Create budget", "budget-new", "usage", _administers_departments),
    ("Grant role", "grant", "access", has_admin_role),
    ("Add user", "user-new", "access", is_platform_admin),
    ("Create token", "token-new", "lock", _allow_everyone),
    ("Create subscription", "notification-new", "bell", _allow_everyone),
    ("Change password", "password", "lock", _has_password),
)
PAGES_OF_FORMS = {"submit", "pool-new", "schedule-new"}  # forms that are too long for a dialog
STOP_WORDS = {"the", "of", "in", "for"}
MAX_CANDIDATES, MAX_PHRASES = 20, 6
DANGEROUS = {"cancel", "delete"}
# Actions whose icons have a different name.
ACTION_ICONS = {"pause": "suspend", "run": "resume", "retry": "resubmit"}
SWITCH_THEME = "Switch between dark and light theme"
EDIT_QUOTA = "Edit the quota"
# Title, route and icon of each page, and the filters that the page supports.
FILTERED_PAGES = (
    ("Workloads", "workloads", "workloads", ("project", "pool")),
    ("Queue", "queue", "queue", ("project", "pool")),
    ("Quotas", "quotas", "quotas", ("pool",)),
    ("Fair share", "fair-share", "share", ("pool",)),
    ("Usage and cost", "usage", "usage", ("project", "pool")),
    ("Evictions", "evictions", "evictions", ("project", "pool")),
)


def form_actions(actor: Actor, words: Iterable[str]) -> Iterator[SearchHit]:
    """Yield the user's forms and the action that switches the theme, if their titles contain all words."""
    for title, route, icon, is_allowed in FORMS:
        if all(word.lower() in title.lower() for word in words) and is_allowed(actor):
            in_dialog = route not in PAGES_OF_FORMS
            yield SearchHit(title, reverse(route), icon, in_dialog=in_dialog, is_action=in_dialog)
    if all(word.lower() in SWITCH_THEME.lower() for word in words):
        yield SearchHit(SWITCH_THEME, "#", "theme", switches_theme=True, is_action=True)


def page_actions(actor: Actor, url: str | None) -> list[SearchHit]:
    """Return the actions on the workload, array or schedule whose page is open at `url`."""
    match = _resolve_url(url)
    if match is None:
        return []
    if "array_id" in match.kwargs:
        return list(row_actions(actor, (), arrays(actor).filter(pk=match.kwargs["array_id"])))
    if "workload_id" in match.kwargs:
        workload = workloads(actor).filter(pk=match.kwargs["workload_id"]).first()
        return list(row_actions(actor, [workload], ())) if workload else []
    if match.url_name == "schedule":
        project, name = match.kwargs["project"], match.kwargs["name"]
        schedule = schedules(actor).filter(project__name=project, name=name).first()
        return list(schedule_actions(actor, schedule)) if schedule else []
    return []


def split_verb(words: list[str]) -> tuple[str, list[str]]:
    """Split "cancel diffusion" or "diffusion cancel" into the verb and the other words.

    The verb is "" if there is none. It may end with an s, as in "logs". Only the first and last word may be
    abbreviations of a verb.
    """
    for at, word in enumerate(words):
        least = MIN_VERB_LETTERS if at == 0 else MIN_LAST_VERB_LETTERS
        verb = _action_verb(word.lower(), least if at in (0, len(words) - 1) else len(word) + 1)
        if verb:
            return verb, [*words[:at], *words[at + 1 :]]
    return "", words


def _action_verb(word: str, min_letters: int) -> str:
    """Return the verb that the word stands for, or "" if there is none.

    A final s is ignored. Words with at least `min_letters` letters may be abbreviations.
    """
    for verb in VERBS:
        if word in (verb, f"{verb}s") or (len(word) >= min_letters and verb.startswith(word)):
            return verb
    return ""


def actions_on_own_objects(actor: Actor, verb: str) -> Iterator[SearchHit]:
    """Yield the verb's actions on the user's schedules, recent arrays and recent workloads."""
    if actor.user is None:
        return
    mine = workloads(actor).filter(array=None, submitted_by=actor.user)
    if verb in PHASES_BY_VERB:
        mine = mine.filter(phase__in=PHASES_BY_VERB[verb])
    if verb == "log":
        mine = mine.filter(run__gt=0)
    my_arrays = arrays(actor).filter(submitted_by=actor.user)
    yield from row_actions(
        actor,
        mine.order_by("-submitted_at")[:MAX_CANDIDATES],
        my_arrays.order_by("-submitted_at")[:MAX_CANDIDATES],
    )
    for schedule in schedules(actor).filter(owner=actor.user)[:MAX_CANDIDATES]:
        yield from schedule_actions(actor, schedule)


def row_actions(
    actor: Actor, chosen_workloads: Iterable[Workload], chosen_arrays: Iterable[WorkloadArray]
) -> Iterator[SearchHit]:
    """Yield the actions on workloads and arrays, latest submissions first."""
    chosen_workloads, chosen_arrays = list(chosen_workloads), list(chosen_arrays)
    managed = managed_workloads(chosen_workloads) if chosen_workloads else frozenset()
    counts = count_tasks_by_array(chosen_arrays) if chosen_arrays else {}
    rows: list[Workload | WorkloadArray] = [*chosen_workloads, *chosen_arrays]
    for row in sorted(rows, key=lambda row: row.submitted_at, reverse=True):
        if isinstance(row, Workload):
            yield from workload_actions(actor, row, is_managed=row.pk in managed)
        else:
            yield from array_actions(actor, row, counts[row.pk])


def array_actions(actor: Actor, array: WorkloadArray, counts: TaskCounts) -> Iterator[SearchHit]:
    """Yield the possible actions on an array, given the states of its tasks and the user's role."""
    actions = bulk_actions(actor, array, counts)
    titles = {
        "retry": "Retry failed tasks of {}",
        "suspend": "Suspend tasks of {}",
        "resume": "Resume tasks of {}",
        "cancel": "Cancel tasks of {}",
        "delete": "Delete {}",
    }
    for action, title in titles.items():
        if action in actions:
            path = (
                reverse("array-delete", args=[array.pk])
                if action == "delete"
                else reverse("array-action", args=[array.pk, action])
            )
            yield _dialog_action(action, title.format(array.name), path, array.project.name)
    yield from _copy_action(actor, array)


def workload_actions(actor: Actor, workload: Workload, *, is_managed: bool) -> Iterator[SearchHit]:
    """Yield the actions that the workload's phase and the user's role permit.

    Workloads of sessions and services cannot be edited or resubmitted.
    """
    name, project = workload.name, workload.project.name
    can_operate = may(actor, Action.OPERATE, workload)
    has_own_document = not is_managed and workload.array_id is None
    if workload.run:
        yield SearchHit(
            f"Show log of {name}", reverse("workload-logs", args=[workload.pk]), "template", project
        )
    if can_operate and has_own_document and workload.phase in EDITABLE_PHASES:
        yield SearchHit(f"Edit {name}", reverse("workload-edit", args=[workload.pk]), "edit", project)
    for action in allowed_actions(workload) if can_operate else ():
        path = reverse("workload-action", args=[workload.pk, action])
        yield _dialog_action(action, f"{action.capitalize()} {name}", path, project)
    can_resubmit = has_own_document and workload.phase in ENDED_PHASES
    if can_resubmit and may(actor, Action.SUBMIT, workload.project):
        path = reverse("workload-resubmit", args=[workload.pk])
        yield _dialog_action("resubmit", f"Resubmit {name}", path, project)
    yield from _copy_action(actor, workload)


def _copy_action(actor: Actor, row: Workload | WorkloadArray) -> Iterator[SearchHit]:
    if may(actor, Action.SUBMIT, row.project):
        path = f"{reverse('submit')}?{urlencode({'like': str(row.pk)})}"
        yield SearchHit(f"Edit a copy of {row.name}", path, "copy", row.project.name)


def _dialog_action(action: str, title: str, path: str, place: str) -> SearchHit:
    """Return an action that opens a form on the current page."""
    icon = ACTION_ICONS.get(action, action)
    return SearchHit(title, path, icon, place, in_dialog=True, is_action=True, is_danger=action in DANGEROUS)


def schedule_actions(actor: Actor, schedule: Schedule) -> Iterator[SearchHit]:
    """Yield the actions on the schedule that its state and the user's role permit."""
    actions = []
    if may(actor, Action.SUBMIT, schedule.project):
        actions.append("run")
    if may_change(actor, schedule):
        actions += ["resume" if schedule.paused_at else "pause", "delete"]
    for action in actions:
        path = reverse("schedule-action", args=[schedule.project.name, schedule.name, action])
        title = f"{action.capitalize()} {schedule.name}"
        yield _dialog_action(action, title, path, f"{schedule.project.name}, schedule")


def filtered_page_hits(actor: Actor, words: Sequence[str]) -> list[SearchHit]:
    """Return pages filtered by a project or pool.

    Some of the words must be in the title, and the remaining words in the name of the project or pool.
    """
    names_by_key: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def names(kind: str, others: tuple[str, ...]) -> list[str]:
        if (kind, others) not in names_by_key:
            rows = projects(actor) if kind == "project" else visible_pools(actor)
            names_by_key[kind, others] = [
                row.name for row in _rows_with_all_words(rows, others)[:MAX_PHRASES]
            ]
        return names_by_key[kind, others]

    hits = []
    for title, route, icon, filters in FILTERED_PAGES:
        others = words_not_in_title(words, title)
        if 0 < len(others) < len(words):
            for kind in filters:
                preposition = "of" if kind == "project" else "in pool"
                for name in names(kind, others):
                    path = f"{reverse(route)}?{urlencode({kind: name})}"
                    hits.append(SearchHit(f"{title} {preposition} {name}", path, icon))
    return hits[:MAX_PHRASES]


def quota_actions(actor: Actor, words: Sequence[str]) -> list[SearchHit]:
    """Return links to edit quotas, for a search such as "edit quota vision".

    All words other than "edit quota" must match the project or the pool.
    """
    others = words_not_in_title(words, EDIT_QUOTA)
    if len(words) < 2 or len(others) == len(words):
        return []
    pools = list(visible_pools(actor).order_by("name")[:MAX_CANDIDATES])
    all_projects = projects(actor).order_by("name")
    named = list(_rows_with_any_word(all_projects, others)[:MAX_CANDIDATES]) if others else []
    hits = (
        SearchHit(
            f"{EDIT_QUOTA} of {project.name} in {pool.name}",
            reverse("quota", args=["projects", project.name, pool.name]),
            "quotas",
        )
        for project in named or all_projects[:MAX_CANDIDATES]
        for pool in pools
        if all(word in project.name or word in pool.name for word in others)
        and may(actor, Action.SET_QUOTA, project)
    )
    return list(islice(hits, MAX_PHRASES))


def words_not_in_title(words: Sequence[str], title: str) -> tuple[str, ...]:
    """Return the words in lower case, without STOP_WORDS and without words that begin a word of the title."""
    parts = title.lower().split()
    lowered = (word.lower() for word in words)
    return tuple(
        word
        for word in lowered
        if word not in STOP_WORDS and not any(part.startswith(word) for part in parts)
    )


def _rows_with_all_words(rows: QuerySet[Any], words: Sequence[str]) -> QuerySet[Any]:
    for word in words:
        rows = rows.filter(name__icontains=word)
    return rows.order_by("name")


def _rows_with_any_word(rows: QuerySet[Any], words: Sequence[str]) -> QuerySet[Any]:
    return rows.filter(reduce(or_, (Q(name__icontains=word) for word in words)))


def _resolve_url(url: str | None) -> ResolverMatch | None:
    try:
        return resolve(urlsplit(url or "").path)
    except (Resolver404, ValueError):
        return None
