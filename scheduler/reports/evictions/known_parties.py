"""Validate the workloads and projects in a user's eviction filter."""

from uuid import UUID

from django.db.models import Q, QuerySet

from berth.core.problems import Problem
from berth.db.queries.known_names import NameColumn, unknown_name_problem
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.selectors import workloads
from scheduler.models import Eviction
from scheduler.reports.selectors import evictions, preemptor_filter, victim_filter


def unknown_party_problems(
    actor: Actor, *, preemptor: str | None = None, victim: str | None = None
) -> list[Problem | None]:
    """Return one value for each party: a problem if the user cannot see the party, otherwise None.

    Deleted workloads can still be found through their evictions.
    """
    problems = []
    if preemptor is not None:
        matching = preemptor_filter(actor, preemptor)
        sources = [
            *_workload_names(actor, preemptor),
            NameColumn(visible_projects(actor)),
            NameColumn(_visible_evictions(actor, "preemptor_project_id"), "preemptor_name", matching),
            NameColumn(evictions(actor), "preemptor_project_name"),
        ]
        problems.append(unknown_name_problem("preemptor", preemptor, "a workload or project", sources))
    if victim is not None:
        matching = victim_filter(actor, victim)
        sources = [
            *_workload_names(actor, victim),
            NameColumn(_visible_evictions(actor, "project_id"), "workload_name", matching),
        ]
        problems.append(unknown_name_problem("workload", victim, "a workload", sources))
    return problems


def _visible_evictions(actor: Actor, column: str) -> QuerySet[Eviction]:
    rows = evictions(actor)
    if is_platform_admin(actor):
        return rows
    return rows.filter(**{f"{column}__in": visible_projects(actor).values("pk")})


def _workload_names(actor: Actor, text: str) -> list[NameColumn]:
    try:
        return [NameColumn(workloads(actor), condition=Q(pk=UUID(text)))]
    except ValueError:
        return [NameColumn(workloads(actor))]
