"""One step of one service towards its desired state."""

import logging
import uuid
from collections.abc import Mapping
from datetime import datetime

from berth.db.crash_points import crash_point, outside_transactions
from projects.elastic import autoscale, routes, weights
from projects.elastic.looks import Look, look
from projects.elastic.moves import settle
from projects.elastic.ports import Ports
from projects.elastic.view import View, view_of
from projects.models import Service
from projects.services.inference.requests import locked
from projects.serving.base import RouterClient

log = logging.getLogger(__name__)

MOVING = ("CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "DRAINING", "REMOVING")


def step(service: Service, ports: Ports, now: datetime) -> bool:
    """True while it is on its way somewhere, so that it is worth to look again soon."""
    outside_transactions()
    seen = view_of(service)
    router = ports.router(service, seen.spec)
    looks = look(seen, ports, router, now)
    crash_point("services.looked")
    moved = _settle(service, looks, router, ports, now)
    crash_point("services.settled")
    view = view_of(_fresh(service))
    if _comparison_is_due(service, now):
        routes.compare(view, router, ports.fence)
        view = view_of(_fresh(service))
        with ports.fence():
            Service.objects.filter(pk=service.pk).update(looked_at=now)
    weights.follow(view, ports.fence)
    moved |= routes.tell(view, router, ports.fence, now)
    moved |= weights.copy(view, ports, now)
    moved |= autoscale.watch(view, ports, now)
    crash_point("services.done")
    return moved or _is_restless(view)


def living() -> list[Service]:
    """Those with something left to do, also after their end."""
    rows = Service.objects.filter(ended_at__isnull=True).select_related("workload__project__department")
    return list(rows.order_by("pk"))


def _settle(
    service: Service,
    looks: Mapping[uuid.UUID, Look],
    router: RouterClient | None,
    ports: Ports,
    now: datetime,
) -> bool:
    """What was seen counts only for engines that are still where they were seen."""
    with ports.fence():
        view = view_of(locked(service))
        return settle(view, looks, router is not None, now)


def _comparison_is_due(service: Service, now: datetime) -> bool:
    at = service.looked_at
    return at is None or not at <= now < at + routes.COMPARE_EVERY


def _is_restless(view: View) -> bool:
    return view.request is not None or any(engine.state in MOVING for engine in view.engines)


def _fresh(service: Service) -> Service:
    return Service.objects.select_related("workload__project__department").get(pk=service.pk)
