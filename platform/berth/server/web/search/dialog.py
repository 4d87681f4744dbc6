"""Search for pages, objects and actions that the user may use, and show the results in the search dialog."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from operator import or_
from typing import Any

from django.db.models import Case, Q, QuerySet, When
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from berth.server.web.pages import Request, signed_in
from berth.server.web.search.nearest_words import correct_words
from berth.server.web.search.pages import page_hits, pool_page_hits
from berth.server.web.search.palette import (
    TITLE_STARTS,
    SearchHit,
    actions_on_own_objects,
    filtered_page_hits,
    form_actions,
    page_actions,
    quota_actions,
    row_actions,
    schedule_actions,
    split_verb,
)
from berth.server.web.search.rank import rank
from berth.server.web.search.recent_pages import recent_hits
from berth.server.web.search.workloads import (
    all_matches_hit,
    array_hits,
    current_workload_hits,
    state_list_hits,
    task_hits,
    user_list_hits,
    workload_hit,
    workload_list_url,
)
from pools.models.node import NodeState
from projects.access import visible_nodes, visible_pools
from projects.actor import Actor
from projects.models import Phase, Service, Workload, WorkloadArray
from projects.models.workloads import LIVE_PHASES
from projects.queries.services import services
from projects.selectors import (
    arrays,
    id_condition,
    projects,
    quota_groups,
    schedules,
    templates,
    workloads,
)
from projects.web.services.serving import load_serving_statuses
from projects.web.workloads.listing.engine_rows import exclude_added_engines

MAX_WORDS, MAX_LENGTH = 5, 100
MAX_OF_A_KIND = 6
MAX_FORMS = 3  # maximum number of forms that an empty search lists
MAX_CANDIDATES = 20  # maximum number of workloads whose actions are searched
LIVE_FIRST = Case(When(phase=Phase.RUNNING, then=0), When(phase__in=LIVE_PHASES, then=1), default=2)
# Words that users may type beside an object's name to state its kind.
WORKLOAD, ARRAY, SERVICE = ("workload", "workloads"), ("array", "arrays"), ("service", "services")
SCHEDULE, PROJECT = ("schedule", "schedules"), ("project", "projects", "department", "departments")
POOL, NODE = ("pool", "pools", "node", "nodes"), ("node", "nodes")
QUOTA_GROUP, TEMPLATE = ("quota", "group", "groups"), ("template", "templates")

Target = Workload | Service | WorkloadArray


@dataclass(frozen=True, slots=True)
class HitGroup:
    """Search results of one kind.

    If `follows` names another group, the results are actions on the first result of that group.
    """

    title: str
    hits: list[SearchHit]
    follows: str = ""
    kind: tuple[str, ...] = ()  # words for this kind of object, as in the search "pool local"


@signed_in
@require_GET
def search(request: Request) -> HttpResponse:
    words = request.GET.get("q", "").replace("\0", "")[:MAX_LENGTH].split()[:MAX_WORDS]
    actor, url = request.actor, request.htmx.current_url
    if not words:
        recent = recent_hits(actor, request.GET.getlist("recent"))
        groups = [HitGroup("Recently visited", recent), *empty_search_groups(actor, url, recent)]
        return render(
            request, "web/search.html", {"groups": [group for group in groups if group.hits], "marked": ()}
        )
    groups, corrected = _nonempty_groups(actor, words, url), ""
    if not groups:
        nearest_words = correct_words(actor, words)
        groups = _nonempty_groups(actor, nearest_words, url) if nearest_words != words else []
        corrected = " ".join(nearest_words) if groups else ""
    text = " ".join(words)
    context = {
        "groups": groups,
        "words": text,
        "corrected": corrected,
        "marked": corrected.split() or words,
        "verb": text if not split_verb(words)[1] else "",
        "list_url": workload_list_url(state="all", search=text),
    }
    return render(request, "web/search.html", context)


def empty_search_groups(actor: Actor, url: str | None, recent: Sequence[SearchHit]) -> Iterator[HitGroup]:
    """Yield the groups for an empty search: actions on the page at `url`, current workloads and forms.

    The current workloads are the user's own or, if there are none, all visible ones. Workloads in `recent`
    are left out.
    """
    yield HitGroup("Actions on this page", page_actions(actor, url))
    now = timezone.now()
    own = current_workload_hits(actor, now, mine=True) if actor.user is not None else []
    current = own or current_workload_hits(actor, now, mine=False)
    yield HitGroup("My workloads" if own else "Current workloads", _exclude_duplicate_hits(recent, current))
    forms = list(islice(form_actions(actor, ()), MAX_FORMS))
    yield HitGroup("Actions", forms)
    if not current:
        yield HitGroup("Pages", _exclude_duplicate_hits(forms, page_hits(actor, ())))


def _nonempty_groups(actor: Actor, words: list[str], url: str | None) -> list[HitGroup]:
    """Return the groups with hits, best first. A group comes directly after the group that it `follows`."""
    all_groups = [group for group in find_groups(actor, words, url) if group.hits]
    groups = [group for group in all_groups if not group.follows]
    for group in groups:
        group.hits.sort(key=lambda hit: rank(hit, remove_kind_words(words, group.kind)))
    groups.sort(key=lambda group: rank(group.hits[0], remove_kind_words(words, group.kind)))
    for group in all_groups:
        if group.follows:
            place = next(at for at, other in enumerate(groups, 1) if other.title == group.follows)
            groups.insert(place, group)
    return groups


def find_groups(actor: Actor, words: list[str], url: str | None = None) -> Iterator[HitGroup]:
    """Yield groups of results.

    Every word must occur in the result's name, project or pool. Words of a page or action can be combined
    with names, as in "edit quota vision". The name of a kind, as in "pool train", restricts only the results
    that are objects. After a verb such as "cancel", actions on matching workloads and schedules come first.
    If there is no other word, they are actions on the user's latest workloads and schedules.
    """
    verb, rest = split_verb(words)
    of_verb = list(_actions_for_verb(actor, verb, rest, url))[:MAX_OF_A_KIND] if verb else []
    if not of_verb and rest and rest != words[1:]:
        verb = ""  # a verb that is not the first word may be part of a name
    actions = [*of_verb, *quota_actions(actor, words), *form_actions(actor, words)]
    yield HitGroup("Actions", actions)
    pages = chain(page_hits(actor, words), filtered_page_hits(actor, words), pool_page_hits(actor, words))
    yield HitGroup("Pages", _exclude_duplicate_hits(actions, pages))
    lists = [] if verb else state_list_hits(actor, words)
    yield HitGroup("Lists", [*lists, *user_list_hits(actor, words)])
    matching = _matching_rows(
        workloads(actor).filter(array=None), words, "name", "project__name", kind=WORKLOAD, id_column="pk"
    )
    # A service is one result, so its workload and its engines are omitted.
    named: QuerySet[Any] = exclude_added_engines(matching).exclude(
        pk__in=services(actor).order_by().values("workload")
    )
    listed = list(named.order_by("match", LIVE_FIRST, "-submitted_at")[: MAX_OF_A_KIND + 1])
    matching_workloads = listed[:MAX_OF_A_KIND]
    wanted = remove_kind_words(words, WORKLOAD)
    # The full list accepts only one search text, so link to it only for a single word.
    has_more = len(listed) > MAX_OF_A_KIND and len(wanted) == 1
    others = [all_matches_hit(actor, wanted[0])] if has_more else []
    yield HitGroup("Workloads", [*map(workload_hit, matching_workloads), *others], kind=WORKLOAD)
    matching_services = _matching_services(actor, words)
    yield HitGroup("Services", _service_hits(matching_services), kind=WORKLOAD + SERVICE)
    found_arrays = _matching_rows(arrays(actor), words, "name", "project__name", kind=ARRAY, id_column="pk")
    matching_arrays = list(found_arrays[:MAX_OF_A_KIND])
    yield HitGroup("Arrays", list(array_hits(matching_arrays)), kind=ARRAY)
    candidates = [*matching_workloads, *matching_services, *matching_arrays]
    if not verb and (target := _action_target(candidates, words)) is not None:
        yield _actions_on_target(actor, target)
    yield HitGroup("Array tasks", list(task_hits(actor, words)))
    yield HitGroup(
        "Schedules",
        [
            SearchHit(
                row.name,
                reverse("schedule", args=[row.project.name, row.name]),
                "schedules",
                row.project.name,
                state="" if row.next_at else "paused",
            )
            for row in _matching_rows(schedules(actor), words, "name", "project__name", kind=SCHEDULE)[
                :MAX_OF_A_KIND
            ]
        ],
        kind=SCHEDULE,
    )
    yield HitGroup(
        "Projects",
        [
            SearchHit(row.name, workload_list_url(project=row.name), "quotas", row.department.name)
            for row in _matching_rows(projects(actor), words, "name", "department__name", kind=PROJECT)[
                :MAX_OF_A_KIND
            ]
        ],
        kind=PROJECT,
    )
    yield HitGroup(
        "Node pools",
        [
            SearchHit(row.name, reverse("node-pool", args=[row.name]), "pools")
            for row in _matching_rows(visible_pools(actor), words, "name", kind=POOL)[:MAX_OF_A_KIND]
        ],
        kind=POOL,
    )
    yield HitGroup(
        "Quota groups",
        [
            SearchHit(row.name, f"{reverse('quotas')}?{urlencode({'pool': row.name})}", "quotas")
            for row in _matching_rows(quota_groups(actor), words, "name", kind=QUOTA_GROUP)[:MAX_OF_A_KIND]
        ],
        kind=QUOTA_GROUP,
    )
    yield HitGroup(
        "Nodes",
        [
            SearchHit(row.name, reverse("node", args=[row.name]), "pools", row.pool.name, state=row.state)
            for row in _matching_rows(visible_nodes(actor), words, "name", "pool__name", kind=NODE)
            .exclude(state=NodeState.ENDED)
            .select_related("pool")[:MAX_OF_A_KIND]
        ],
        kind=NODE,
    )
    yield HitGroup(
        "Templates",
        [
            SearchHit(
                row.name,
                f"{reverse('submit')}?{urlencode({'template': f'{row.project.name}/{row.name}'})}",
                "template",
                row.project.name,
            )
            for row in _matching_rows(templates(actor), words, "name", "project__name", kind=TEMPLATE)[
                :MAX_OF_A_KIND
            ]
        ],
        kind=TEMPLATE,
    )


def remove_kind_words(words: Sequence[str], kind: Sequence[str]) -> list[str]:
    """Remove the words that name the kind. Return all words unchanged if none would be left."""
    return [word for word in words if word.lower() not in kind] or [*words]


def _sort_destructive_last(hits: Iterable[SearchHit]) -> list[SearchHit]:
    return sorted(hits, key=lambda hit: hit.is_danger)


def _exclude_duplicate_hits(others: Iterable[SearchHit], hits: Iterable[SearchHit]) -> list[SearchHit]:
    paths = {each.path for each in others}
    return [hit for hit in hits if hit.path not in paths]


def _action_target(candidates: Sequence[Target], words: Sequence[str]) -> Target | None:
    """Return the first candidate whose name equals the words, or else the only candidate.

    Return None if there are no candidates or several.
    """
    name = " ".join(remove_kind_words(words, WORKLOAD + ARRAY + SERVICE)).lower()
    exact = [row for row in candidates if _target_name(row).lower() == name]
    choice = exact or candidates
    return choice[0] if exact or len(choice) == 1 else None


def _target_name(target: Target) -> str:
    return target.workload.name if isinstance(target, Service) else target.name


def _actions_on_target(actor: Actor, target: Target) -> HitGroup:
    """Return the group of actions on the target, which is shown after the group of the target's kind."""
    if isinstance(target, WorkloadArray):
        title, hits = "Arrays", row_actions(actor, (), [target])
    elif isinstance(target, Service):
        title, hits = "Services", row_actions(actor, [target.workload], ())
    else:
        title, hits = "Workloads", row_actions(actor, [target], ())
    return HitGroup(f"Actions on {_target_name(target)}", _sort_destructive_last(hits), title)


def _matching_services(actor: Actor, words: list[str]) -> list[Service]:
    columns, kind = ("workload__name", "workload__project__name"), WORKLOAD + SERVICE
    matching = _matching_rows(services(actor), words, *columns, kind=kind, id_column="workload_id")
    return list(matching.order_by("match", "-created_at")[:MAX_OF_A_KIND])


def _service_hits(rows: Sequence[Service]) -> list[SearchHit]:
    """Return a hit for each service, with the number of serving engines or the final phase."""
    statuses = load_serving_statuses(row.workload for row in rows)
    hits = []
    for row in rows:
        path, project = reverse("service", args=[row.workload_id]), row.workload.project.name
        status = statuses[row.workload_id]
        state = status.title if status.tone else row.workload.phase
        hits.append(SearchHit(row.workload.name, path, "services", project, state=state, tone=status.tone))
    return hits


def _actions_for_verb(actor: Actor, verb: str, words: list[str], url: str | None) -> Iterator[SearchHit]:
    """Yield the actions for a verb such as "cancel".

    With `words`, the actions apply to the workloads, arrays and schedules that match them. Otherwise, they
    apply to the open page and to the user's latest workloads.
    """
    if words:
        named = ("name", "project__name")
        latest = [
            _matching_rows(rows, words, *named, kind=WORKLOAD + ARRAY, id_column="pk").order_by(
                "-submitted_at"
            )[:MAX_CANDIDATES]
            for rows in (workloads(actor).filter(array=None), arrays(actor))
        ]
        matching_schedules = _matching_rows(schedules(actor), words, *named, kind=SCHEDULE)[:MAX_OF_A_KIND]
        hits = [*row_actions(actor, *latest)]
        hits += [hit for schedule in matching_schedules for hit in schedule_actions(actor, schedule)]
    else:
        hits = [*page_actions(actor, url), *actions_on_own_objects(actor, verb)]
    start = TITLE_STARTS.get(verb, verb)
    unique = {hit.path: hit for hit in hits if hit.title.lower().startswith(start)}
    yield from unique.values()


def _matching_rows(
    rows: QuerySet[Any], words: Sequence[str], *columns: str, kind: Sequence[str] = (), id_column: str = ""
) -> QuerySet[Any]:
    """Return the rows that match every word in one of the columns or at the start of an ID, best first.

    `match` is 0 if the first column equals the search text, 1 if it starts with the text, and 2 otherwise.
    """
    words = remove_kind_words(words, kind)
    for word in words:
        matching = reduce(or_, (Q(**{f"{column}__icontains": word}) for column in columns))
        rows = rows.filter(matching | id_condition(word, id_column) if id_column else matching)
    name, text = columns[0], " ".join(words)
    is_exact, is_start = (
        When(**{f"{name}__iexact": text}, then=0),
        When(**{f"{name}__istartswith": text}, then=1),
    )
    return rows.annotate(match=Case(is_exact, is_start, default=2)).order_by("match", name)
