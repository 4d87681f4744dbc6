"""One step of one service towards its desired state."""

import logging
import uuid
from collections.abc import Mapping
from datetime import datetime

from berth.db.crash_points import crash_point, outside_transactions
from projects.elastic import autoscale, routes, weights
from projects.elastic.moves import settle
from projects.elastic.ports import Ports
from projects.elastic.probes import Probe, probe
from projects.elastic.view import View, load_view
from projects.models import Service
from projects.services.inference.requests import locked
from projects.serving.base import RouterClient

log = logging.getLogger(__name__)

TRANSIENT_STATES = ("CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "DRAINING", "REMOVING")


def step(service: Service, ports: Ports, now: datetime) -> bool:
    """Run one pass. Return True while the service is changing and needs another pass soon."""
    outside_transactions()
    view_before = load_view(service)
    router = ports.router(service, view_before.spec)
    probes = probe(view_before, ports, router, now)
    crash_point("services.looked")
    view, moved = _settle(service, probes, router, ports, now)
    crash_point("services.settled")
    if moved:
        view = load_view(_reload(service))
    if _comparison_is_due(service, now):
        routes.compare(view, router, ports.fence)
        with ports.fence():
            Service.objects.filter(pk=service.pk).update(looked_at=now)
    weights.update_version(view, ports.fence)
    moved |= routes.update_router(view, router, ports.fence, now)
    moved |= weights.copy_next(view, ports, now)
    moved |= autoscale.run_autoscaler(view, ports, now)
    crash_point("services.done")
    return moved or _is_changing(view)


def live_services() -> list[Service]:
    """Return services with work left to do, including ended services that are still cleaning up."""
    rows = Service.objects.filter(ended_at__isnull=True).select_related("workload__project__department")
    return list(rows.order_by("pk"))


def _settle(
    service: Service,
    probes: Mapping[uuid.UUID, Probe],
    router: RouterClient | None,
    ports: Ports,
    now: datetime,
) -> tuple[View, bool]:
    """Apply probes to the current rows, which may have changed since the probe.

    Return these rows and True if a state changed. If so, the caller must read the rows again.
    """
    with ports.fence():
        view = load_view(locked(service))
        return view, settle(view, probes, router is not None, now)


def _comparison_is_due(service: Service, now: datetime) -> bool:
    at = service.looked_at
    return at is None or not at <= now < at + routes.COMPARE_EVERY


def _is_changing(view: View) -> bool:
    return view.request is not None or any(engine.state in TRANSIENT_STATES for engine in view.engines)


def _reload(service: Service) -> Service:
    return Service.objects.select_related("workload__project__department").get(pk=service.pk)
