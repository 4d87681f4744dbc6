"""Run a service's autoscaler and submit its decisions as scale requests."""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from berth.core.errors import BerthError
from berth.db.loops.crash_points import assert_no_transaction, crash_point
from projects.actor import Actor
from projects.elastic.reconcile_context import ReconcileContext
from projects.elastic.view import ServiceView
from projects.engine.replicas import conditions, storing
from projects.engine.replicas.config import AutoscalerConfig
from projects.engine.replicas.decide import Fleet, ScalingAction, ScalingDecision, ScalingTimes, decide
from projects.engine.replicas.readings import SampleWindow
from projects.engine.scaling import FINAL
from projects.models import Autoscaler, MetricsPoint, ScaleRequest, Scaling, Service
from projects.services.inference.autoscalers import load_config, update_columns
from projects.services.inference.requests import scale_in, scale_out
from projects.services.inference.rules import ScaleParameters, engine_count
from projects.serving.scraping import Scrape, ScrapeTarget, scrape

log = logging.getLogger(__name__)

AUTOSCALER = Actor.system("autoscaler")
SCRAPE_SECONDS = 5.0
METRICS_RETENTION = timedelta(hours=24)


def run_autoscaler(view: ServiceView, reconcile_context: ReconcileContext, now: datetime) -> bool:
    """Scrape metrics and evaluate them at the configured intervals.

    Return whether a scale request was submitted.
    """
    if view.has_ended:
        return False
    row = Autoscaler.objects.get(service=view.service)
    config = load_config(row)
    if _is_due(row.scraped_at, config.metrics_interval_secs, now):
        _scrape_metrics(row, config, view, reconcile_context, now)
    if _is_due(row.evaluated_at, config.evaluation_interval_secs, now):
        return _evaluate_autoscaler(row, config, view.service, reconcile_context, now)
    return False


def load_window(row: Autoscaler) -> SampleWindow:
    return storing.window_from_json(row.memory)


def scaling_times(service: Service, now: datetime) -> ScalingTimes:
    """Return the timestamps for a scaling decision. A user's scale request starts the cooldown, too."""
    last = last_scale_request(service)
    if last is None:
        return ScalingTimes(now.timestamp())
    return ScalingTimes(now.timestamp(), last.created_at.timestamp(), ScalingAction(last.direction))


def last_scale_request(service: Service) -> ScaleRequest | None:
    return service.requests.exclude(status="NOOP").order_by("-created_at", "-id").first()


def metrics_snapshot(window: SampleWindow, config: AutoscalerConfig) -> dict[str, Any]:
    return storing.metrics_to_json(conditions.compute_metrics(window, config))


def _is_due(last: datetime | None, every: float, now: datetime) -> bool:
    """Return whether `every` seconds have passed since `last`, or whether the clock has been set back since
    then.
    """
    return last is None or not last <= now < last + timedelta(seconds=every)


def _scrape_metrics(
    row: Autoscaler,
    config: AutoscalerConfig,
    view: ServiceView,
    reconcile_context: ReconcileContext,
    now: datetime,
) -> None:
    assert_no_transaction()
    active = [engine for engine in view.engines if engine.state == "ACTIVE"]
    targets = [
        ScrapeTarget(e.name, e.url, reconcile_context.engines(view.spec.engine, e.origin != "external"))
        for e in active
    ]
    seconds = min(SCRAPE_SECONDS, config.metrics_interval_secs)
    scraped = scrape(targets, now=now.timestamp, seconds=seconds)
    for name, error in scraped.errors.items():
        log.info("no metrics from %s of %s: %s", name, view.service, error)
    window = conditions.add_sample(load_window(row), scraped.sample, config)
    crash_point("services.scraped")
    with reconcile_context.fence():
        row.memory, row.scraped_at = storing.to_json(window), now
        update_columns(view.service, memory=row.memory, scraped_at=now)
        _store_metrics(view.service, scraped, metrics_snapshot(window, config), now)


def _store_metrics(service: Service, scraped: Scrape, values: Mapping[str, Any], now: datetime) -> None:
    by_engine = {
        reading.engine: {
            "token_usage": reading.token_usage,
            "queued": reading.queued,
            "running": reading.running,
        }
        for reading in scraped.sample.readings
    }
    MetricsPoint.objects.update_or_create(
        service=service,
        at=now,
        defaults={
            "engines": len(scraped.sample.engines), "reporting": len(scraped.sample.readings),
            "values": dict(values), "by_engine": by_engine,
        },
    )  # fmt: skip
    MetricsPoint.objects.filter(service=service, at__lt=now - METRICS_RETENTION).delete()


def _evaluate_autoscaler(
    row: Autoscaler,
    config: AutoscalerConfig,
    service: Service,
    reconcile_context: ReconcileContext,
    now: datetime,
) -> bool:
    window, count = load_window(row), engine_count(service)
    pending = service.requests.exclude(status__in=FINAL).exists()
    fleet = Fleet(count, service.initial_engines)
    decision = decide(window, fleet, config, scaling_times(service, now), pending)
    crash_point("services.decided")
    decision_data = {"action": str(decision.action), "delta": decision.delta, "reason": decision.reason}
    columns: dict[str, Any] = {"evaluated_at": now, "last_decision": decision_data, "last_error": ""}
    with reconcile_context.fence():
        update_columns(service, **columns)
        return decision.action is not ScalingAction.NONE and _submit_request(
            service, decision, count, metrics_snapshot(window, config), now
        )


def _submit_request(
    service: Service, decision: ScalingDecision, count: int, metrics: dict[str, Any], now: datetime
) -> bool:
    """Submit the autoscaler's scale request in the caller's transaction.

    Return False if the request was rejected or has no effect.
    """
    parameters = ScaleParameters(num_replicas=decision.target, by_autoscaler=True, reason=decision.reason)
    try:
        if decision.action is ScalingAction.OUT:
            accepted = scale_out(actor=AUTOSCALER, service=service, parameters=parameters, now=now)
        else:
            accepted = scale_in(actor=AUTOSCALER, service=service, parameters=parameters, now=now)
    except BerthError as error:
        log.warning("the autoscaler's scale request for %s was rejected: %s", service, error)
        update_columns(service, last_error=str(error))
        return False
    request = accepted.request
    assert request is not None, "only a dry run returns no request"
    if accepted.status == "NOOP":
        return False
    update_columns(service, last_scale_at=now, last_scale_action=request.direction)
    Scaling.objects.create(
        service=service, request=request, action=request.direction, status=request.status,
        triggered_at=now, from_engines=count, to_engines=decision.target, delta=decision.delta,
        reason=decision.reason, triggered_conditions=list(decision.conditions), metrics_snapshot=metrics,
    )  # fmt: skip
    return True
