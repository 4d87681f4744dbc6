"""Queries for inference services that a user may see."""

from uuid import UUID

from django.db.models import Count, F, Q, QuerySet

from berth.core.errors import Conflict
from berth.core.not_found import ObjectKind, not_found_error
from berth.db.queries.known_names import NameColumn
from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.models import ScaleRequest, Service
from projects.models.workloads import ENDED_PHASES


def services(actor: Actor) -> QuerySet[Service]:
    """Return visible services, annotated with the numbers of their live (`total`) and active (`active`)
    inference engines.
    """
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
    """Return a service by workload ID, `project.name` or just its name.

    Live services come first, then the newest ended one. Raises NotFound or, for an ambiguous name, Conflict.
    """
    rows = services(actor)
    if (workload_id := _parse_id(reference)) is not None:
        if (service := rows.filter(workload_id=workload_id).first()) is None:
            raise not_found_error(ObjectKind.SERVICE, object_id=workload_id)
        return service
    project, dot, name = reference.rpartition(".")
    rows = rows.filter(workload__name=name)
    if dot:
        rows = rows.filter(workload__project__name=project)
    live_services = list(rows.exclude(workload__phase__in=ENDED_PHASES)[:2])
    if len(live_services) > 1:
        raise Conflict(f"Several services are named {name}. Use PROJECT.{name} or the service ID.")
    service = live_services[0] if live_services else rows.order_by("-created_at", "-pk").first()
    if service is None:
        names = NameColumn(services(actor), "workload__name").list()
        raise not_found_error(ObjectKind.SERVICE, name=reference, visible=names)
    return service


def select_requests(service: Service, direction: str) -> QuerySet[ScaleRequest]:
    rows = service.requests.filter(direction=direction)
    rows = rows.select_related("service__workload__project")
    return rows.prefetch_related("steps", "added__workload", "removed__workload")


def find_request(service: Service, direction: str, request_id: str) -> ScaleRequest:
    """Return a scale request. Raises NotFound, including for a malformed ID."""
    row_id = _parse_id(request_id)
    request = None if row_id is None else select_requests(service, direction).filter(pk=row_id).first()
    if request is None:
        kind = ObjectKind.SCALE_OUT if direction == "scale_out" else ObjectKind.SCALE_IN
        raise not_found_error(kind, object_id=request_id, owner=service.workload.handle)
    return request


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
