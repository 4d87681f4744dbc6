"""Queries for inference services that a user may see."""

from typing import NoReturn
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet

from berth.core.errors import Conflict, NotFound
from berth.core.problems import format_value
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import ScaleRequest, Service
from projects.models.workloads import ENDED_PHASES


def services(actor: Actor) -> QuerySet[Service]:
    """Return visible services, annotated with their total and active inference engine counts."""
    rows = Service.objects.select_related("workload__project__department", "autoscaler")
    if not is_platform_admin(actor):
        rows = rows.filter(workload__project__in=visible_projects(actor))
    live = Q(engines__ended_at__isnull=True)
    return rows.annotate(
        total=Count("engines", filter=live),
        active=Count("engines", filter=live & Q(engines__state="ACTIVE")),
        began=F("created_at"),
    )


def find_service(actor: Actor, reference: str) -> Service:
    """Return a service by its workload's ID, `project.name` or a name unique among live services.

    Raises NotFound or, for an ambiguous name, Conflict.
    """
    rows = services(actor)
    try:
        return rows.filter(workload_id=UUID(reference)).first() or _raise_unknown(reference)
    except ValueError:
        project, dot, name = reference.rpartition(".")
    rows = rows.filter(workload__name=name)
    if dot:
        rows = rows.filter(workload__project__name=project)
    live_services = list(rows.exclude(workload__phase__in=ENDED_PHASES)[:2])
    if len(live_services) > 1:
        raise Conflict(f"Several services are named {name}: use PROJECT.{name} or the ID.")
    service = live_services[0] if live_services else rows.order_by("-created_at", "-pk").first()
    return service or _raise_unknown(reference)


def select_requests(service: Service, direction: str) -> QuerySet[ScaleRequest]:
    rows = service.requests.filter(direction=direction)
    rows = rows.select_related("service__workload__project")
    return rows.prefetch_related("steps", "added__workload", "removed__workload")


def find_request(service: Service, direction: str, request_id: str) -> ScaleRequest:
    """Return a scale request. Raises NotFound, including for a malformed ID."""
    try:
        request = select_requests(service, direction).filter(pk=UUID(request_id)).first()
    except ValueError:
        request = None
    if request is None:
        raise NotFound(f"This service has no {direction} request with the ID {format_value(request_id)}.")
    return request


def _raise_unknown(reference: str) -> NoReturn:
    raise NotFound(f"There is no service named {format_value(reference)}.")
