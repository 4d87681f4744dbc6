"""Reconcile one service with its desired state."""

import logging
import uuid
from collections.abc import Mapping
from datetime import datetime

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.queries.compiled import compiled_once
from projects.elastic import autoscale, routes, weights
from projects.elastic.probes import Probe, probe_engines
from projects.elastic.reconcile_context import ReconcileContext
from projects.elastic.transitions import apply_probes
from projects.elastic.view import ServiceView, load_view
from projects.models import Service
from projects.services.inference.requests import lock_service
from projects.serving.base import RouterClient

log = logging.getLogger(__name__)

TRANSIENT_STATES = ("CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "DRAINING", "REMOVING")

LIVE_SERVICES = compiled_once(
    lambda: (
        Service.objects.filter(ended_at__isnull=True)
        .select_related("workload__project__department")
        .order_by("pk")
    )
)
SERVICE = compiled_once(
    lambda key: Service.objects.select_related("workload__project__department").filter(pk=key)
)


def run_pass(service: Service, reconcile_context: ReconcileContext, now: datetime) -> bool:
    """Run one pass. Return whether the service is still changing and needs another pass soon."""
    assert_no_transaction()
    view_before = load_view(service)
    router = reconcile_context.router(service, view_before.spec)
    probes = probe_engines(view_before, reconcile_context, router, now)
    crash_point("services.looked")
    view, any_changed = _apply_probes(service, probes, router, reconcile_context, now)
    crash_point("services.settled")
    if any_changed:
        [current] = SERVICE(service.pk)
        view = load_view(current)
    if _is_comparison_due(service, now):
        routes.mark_lost_engines(view, router, reconcile_context.fence)
        with reconcile_context.fence():
            Service.objects.filter(pk=service.pk).update(looked_at=now)
    weights.update_version(view, reconcile_context.fence)
    any_changed |= routes.update_router(view, router, reconcile_context.fence, now)
    any_changed |= weights.copy_to_next_engine(view, reconcile_context, now)
    any_changed |= autoscale.run_autoscaler(view, reconcile_context, now)
    crash_point("services.done")
    return any_changed or _is_changing(view)


def live_services() -> list[Service]:
    """Return the services that have not ended, and ended services that still need cleanup."""
    return list(LIVE_SERVICES())


def _apply_probes(
    service: Service,
    probes: Mapping[uuid.UUID, Probe],
    router: RouterClient | None,
    reconcile_context: ReconcileContext,
    now: datetime,
) -> tuple[ServiceView, bool]:
    """Update the states of the service's rows from the results of probes.

    Return the rows and whether a state changed. If one did, the caller must load the rows again.
    """
    with reconcile_context.fence():
        view = load_view(lock_service(service))
        return view, apply_probes(view, probes, router is not None, now)


def _is_comparison_due(service: Service, now: datetime) -> bool:
    at = service.looked_at
    return at is None or not at <= now < at + routes.COMPARISON_INTERVAL


def _is_changing(view: ServiceView) -> bool:
    return view.request is not None or any(engine.state in TRANSIENT_STATES for engine in view.engines)
