"""Search for pages and objects that the user may see, and show the results in the search dialog."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TypeVar

from django.db.models import Model, Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET

from berth.server.web.navigation import navigation_groups
from berth.server.web.pages import Request, signed_in
from pools.models.node import NodeState
from projects.access import may_submit_anywhere, visible_nodes, visible_pools
from projects.actor import Actor
from projects.selectors import arrays, projects, templates, workloads
from projects.service_selectors import services

Row = TypeVar("Row", bound=Model)
MAX_WORDS, MAX_LENGTH = 5, 100
MAX_OF_A_KIND = 6


@dataclass(frozen=True, slots=True)
class Hit:
    """Search result: the target of its link, and the project or pool that it belongs to."""

    title: str
    path: str
    icon: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class HitGroup:
    title: str
    hits: list[Hit]


@signed_in
@require_GET
def search(request: Request) -> HttpResponse:
    words = request.GET.get("q", "").replace("\0", "")[:MAX_LENGTH].split()[:MAX_WORDS]
    groups = [group for group in find_groups(request.actor, words) if group.hits]
    return render(request, "web/search.html", {"groups": groups, "words": words})


def find_groups(actor: Actor, words: list[str]) -> Iterator[HitGroup]:
    """Yield groups of results. Every word must occur in the result's name, or in its project or pool.

    If there are no words, only pages are listed.
    """
    yield HitGroup("Pages", list(_pages(actor, words)))
    if not words:
        return
    found_workloads = _matches(workloads(actor).filter(array=None), words, "name", "project__name")
    yield HitGroup(
        "Workloads",
        [
            Hit(row.name, reverse("workload", args=[row.pk]), "workloads", f"{row.project.name}, {row.phase}")
            for row in found_workloads.order_by("-submitted_at")[:MAX_OF_A_KIND]
        ],
    )
    yield HitGroup(
        "Arrays",
        [
            Hit(row.name, reverse("array", args=[row.pk]), "workloads", row.project.name)
            for row in _matches(arrays(actor), words, "name", "project__name")[:MAX_OF_A_KIND]
        ],
    )
    yield HitGroup(
        "Services",
        [
            Hit(
                row.workload.name,
                reverse("service", args=[row.workload_id]),
                "services",
                row.workload.project.name,
            )
            for row in _matches(services(actor), words, "workload__name", "workload__project__name").order_by(
                "-created_at"
            )[:MAX_OF_A_KIND]
        ],
    )
    yield HitGroup(
        "Projects",
        [
            Hit(row.name, _workload_list_url(row.name), "quotas", row.department.name)
            for row in _matches(projects(actor), words, "name", "department__name")[:MAX_OF_A_KIND]
        ],
    )
    yield HitGroup(
        "Node pools",
        [
            Hit(row.name, reverse("node-pool", args=[row.name]), "pools")
            for row in _matches(visible_pools(actor), words, "name").order_by("name")[:MAX_OF_A_KIND]
        ],
    )
    yield HitGroup(
        "Nodes",
        [
            Hit(row.name, reverse("node", args=[row.name]), "pools", row.pool.name)
            for row in _matches(visible_nodes(actor), words, "name", "pool__name")
            .exclude(state=NodeState.ENDED)
            .select_related("pool")
            .order_by("name")[:MAX_OF_A_KIND]
        ],
    )
    yield HitGroup(
        "Templates",
        [
            Hit(
                row.name,
                f"{reverse('submit')}?{urlencode({'template': f'{row.project.name}/{row.name}'})}",
                "template",
                row.project.name,
            )
            for row in _matches(templates(actor), words, "name", "project__name")[:MAX_OF_A_KIND]
        ],
    )


def _pages(actor: Actor, words: Iterable[str]) -> Iterator[Hit]:
    for group, entries in navigation_groups(may_submit=may_submit_anywhere(actor)):
        for entry in entries:
            if all(word.lower() in entry.title.lower() for word in words):
                yield Hit(entry.title, entry.path, entry.icon, group)


def _workload_list_url(project: str) -> str:
    return f"{reverse('workloads')}?{urlencode({'project': project})}"


def _matches(rows: QuerySet[Row], words: Iterable[str], *columns: str) -> QuerySet[Row]:
    """Return the rows in which each word occurs in one of the columns."""
    for word in words:
        rows = rows.filter(reduce(or_, (Q(**{f"{column}__icontains": word}) for column in columns)))
    return rows
