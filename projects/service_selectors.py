"""Queries for inference services that a user may see."""

from typing import NoReturn
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet

from berth.core.errors import Conflict, NotFound
from berth.core.problems import shown
from projects.access import is_platform_admin, visible_projects
from projects.acting import Acting
from projects.models import ScaleRequest, Service
from projects.models.workloads import ENDED_PHASES

LEAVING = ("DRAINING", "REMOVING")


def services(acting: Acting) -> QuerySet[Service]:
    """Return visible services with their numbers of engines and active engines."""
    rows = Service.objects.select_related("workload__project__department", "autoscaler")
    if not is_platform_admin(acting):
        rows = rows.filter(workload__project__in=visible_projects(acting))
    live = Q(engines__ended_at__isnull=True)
    return rows.annotate(
        total=Count("engines", filter=live),
        active=Count("engines", filter=live & Q(engines__state="ACTIVE")),
        began=F("created_at"),
    )


def find_service(acting: Acting, reference: str) -> Service:
    """Return a service by its workload's id, `project.name`, or a name that only one live service has."""
    rows = services(acting)
    try:
        return rows.filter(workload_id=UUID(reference)).first() or _raise_unknown(reference)
    except ValueError:
        project, dot, name = reference.rpartition(".")
    rows = rows.filter(workload__name=name)
    if dot:
        rows = rows.filter(workload__project__name=project)
    living = list(rows.exclude(workload__phase__in=ENDED_PHASES)[:2])
    if len(living) > 1:
        raise Conflict(f"Several services are named {name}: use PROJECT.{name} or the id.")
    service = living[0] if living else rows.order_by("-created_at", "-pk").first()
    return service or _raise_unknown(reference)


def requests_of(service: Service, direction: str) -> QuerySet[ScaleRequest]:
    rows = service.requests.filter(direction=direction)
    rows = rows.select_related("service__workload__project")
    return rows.prefetch_related("steps", "added__workload", "removed__workload")


def find_request(service: Service, direction: str, request_id: str) -> ScaleRequest:
    """Return a scale request. Raises NotFound, including for a malformed id."""
    try:
        request = requests_of(service, direction).filter(pk=UUID(request_id)).first()
    except ValueError:
        request = None
    if request is None:
        raise NotFound(f"This service has no {direction} request with the id {shown(request_id)}.")
    return request


def _raise_unknown(reference: str) -> NoReturn:
    raise NotFound(f"No service is named {shown(reference)}.")
