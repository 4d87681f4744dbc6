"""Apply probe results to the states of inference engines and scale requests."""

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from projects.elastic.children import cancel_workload, create_engines
from projects.elastic.probes import NO_PROBE, Probe
from projects.elastic.view import ServiceView
from projects.engine import inference_engines as engine_rules
from projects.engine import requests as request_rules
from projects.engine.inference_engines import InferenceEngineFacts
from projects.engine.scaling import ENDED
from projects.models import InferenceEngine, ScaleRequest, Service
from projects.services.inference.transitions import record_observations, transition_engine, transition_request

UNHEALTHY_AFTER = 3  # number of consecutive failed checks after which an engine is unhealthy
ROUTER_TIMEOUT = timedelta(hours=1)


def apply_probes(
    view: ServiceView, probes: Mapping[uuid.UUID, Probe], has_router: bool, now: datetime
) -> bool:
    """Update the states of the service, its engines and its scale request from the results of probes.

    Return whether a state changed. `view` must have been loaded under the service's lock.
    """
    any_changed = False
    for engine in view.engines:
        if engine.state not in ENDED:
            _store_probe(engine, probes.get(engine.pk), now)
            any_changed |= _update_engine_state(
                engine, view, probes.get(engine.pk, NO_PROBE), has_router, now
            )
    if view.request is not None:
        any_changed |= _update_request_status(view.request, view, now)
    elif view.has_ended and view.service.ended_at is None and _may_end_service(view, now):
        InferenceEngine.objects.filter(service=view.service).update(router_url="", is_routed=False)
        Service.objects.filter(pk=view.service.pk).update(ended_at=now)
        any_changed = True
    return any_changed


def _may_end_service(view: ServiceView, now: datetime) -> bool:
    """Return whether the service may end even though its router is unreachable.

    All of its engines must have ended long ago.
    """
    return all(e.ended_at is not None and now - e.ended_at >= ROUTER_TIMEOUT for e in view.engines)


def engine_facts(
    engine: InferenceEngine, view: ServiceView, probe: Probe, has_router: bool, now: datetime
) -> InferenceEngineFacts:
    process, spec = view.processes[engine.pk], view.spec
    isolated = engine.isolated_at
    removal_request = engine.removed_by if engine.removed_by_id else None
    return InferenceEngineFacts(
        state=engine.state,
        origin=engine.origin,
        process_state=process.process_state,
        error=process.error or engine.sync_message,
        started_once=process.started_once,
        connected=probe.connected,
        rejection=probe.rejection,
        connection_failures=engine.connection_failures,
        connection_error=probe.error if probe.unreachable else "",
        healthy=probe.healthy,
        has_router=has_router,
        is_routed=engine.is_routed and engine.router_url == engine.url,
        in_router=engine.router_url != "",
        router_timed_out=_has_router_timed_out(engine, spec.scale_in_shutdown_timeout, now),
        weight_sync=spec.weight_sync and engine.origin != "initial",
        strict=spec.weight_consistency == "strict",
        sync=engine.sync,
        isolated=None if isolated is None else max(0.0, (now - isolated).total_seconds()),
        running=probe.running,
        drain_timeout=spec.scale_in_drain_timeout,
        force=removal_request is not None and removal_request.force,
        ends_as=engine.ends_as,
    )


def _has_router_timed_out(engine: InferenceEngine, timeout: float, now: datetime) -> bool:
    return engine.state == "REMOVING" and (now - engine.since).total_seconds() > timeout


def _store_probe(engine: InferenceEngine, probe: Probe | None, now: datetime) -> None:
    if probe is None:
        return
    columns: dict[str, Any] = {"looked_at": now}
    if probe.healthy is not None:
        failures = 0 if probe.healthy else engine.failures + 1
        healthy = probe.healthy or (engine.is_healthy and failures < UNHEALTHY_AFTER)
        columns |= {"failures": failures, "is_healthy": healthy}
    if engine.origin == "external" and engine.state != "ACTIVE":
        columns["connection_failures"] = engine.connection_failures + 1 if probe.unreachable else 0
    if probe.weight_version is not None:
        columns["weight_version"] = probe.weight_version[:200]
    if engine.state == "DRAINING":
        columns["running"] = probe.running
    if probe.error and engine.state != "ACTIVE":
        columns["message"] = probe.error
    record_observations(engine, **columns)


def _update_engine_state(
    engine: InferenceEngine, view: ServiceView, probe: Probe, has_router: bool, now: datetime
) -> bool:
    if view.has_ended and engine.origin != "initial" and engine.state not in ("DRAINING", "REMOVING"):
        return _start_removal(engine, "REMOVED", "", "The service has ended.", now)
    transition = engine_rules.next_state(engine_facts(engine, view, probe, has_router, now))
    if transition is None:
        return False
    if transition.to == "REMOVING":
        return _start_removal(engine, transition.ends_as, transition.failure, transition.message, now)
    previous = engine.message if engine.state == "REMOVING" else ""  # keep the reason for the removal
    columns: dict[str, Any] = {"message": transition.message or previous}
    process = view.processes[engine.pk]
    if engine.state == "CREATING":
        columns |= {"url": process.url, "pod_id": process.pod_id, "failures": 0, "is_healthy": False}
    if transition.to == "CREATING":
        columns |= {"pod_id": None, "url": "", "is_healthy": False, "sync": "", "weight_version": ""}
    return transition_engine(engine, transition.to, now=now, **columns)


def _start_removal(engine: InferenceEngine, ends_as: str, failure: str, message: str, now: datetime) -> bool:
    """Start removing an inference engine and cancel its workload.

    Return False if the engine's state has changed meanwhile.
    """
    reason = message or engine.message
    any_changed = transition_engine(
        engine, "REMOVING", now=now, ends_as=ends_as, failure=failure, message=reason, is_healthy=False
    )
    if any_changed:
        cancel_workload(engine, now)
    return any_changed


def _update_request_status(request: ScaleRequest, view: ServiceView, now: datetime) -> bool:
    engines = _request_engines(request)
    applied = _apply_status(request, engines, now)  # a user may have cancelled the request
    transition = request_rules.next_status(
        request_rules.RequestFacts(
            direction=request.direction, mode=request.mode, status=request.status,
            engines=[_engine_summary(engine) for engine in engines], policy=request.policy or "rollback_all",
            ends_as=request.ends_as, error=request.error_message, overdue=now >= request.deadline,
            weights_change=_are_weights_changing(view.service), service_ended=view.has_ended,
        )
    )  # fmt: skip
    if transition is None:
        return applied
    if transition.give_up:
        _handle_timeout(
            request, [engine for engine in engines if engine.name in transition.give_up], transition, now
        )
    if not transition.to:
        return True
    columns = _request_columns(request, transition, engines)
    if not transition_request(request, transition.to, now=now, message=transition.message, **columns):
        return applied or bool(transition.give_up)
    if transition.to in ("CREATING", "CONNECTING"):
        create_engines(request, now)
    _apply_status(request, engines, now)
    return True


def _request_columns(
    request: ScaleRequest, transition: request_rules.RequestTransition, engines: list[InferenceEngine]
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if transition.ends_as:
        columns["ends_as"] = transition.ends_as
    if transition.failure:
        columns["failure"] = transition.failure
    if transition.message:
        columns["error_message"] = transition.message
    if request.direction == "scale_out":
        broken = [engine for engine in engines if _engine_summary(engine).has_failed]
        versions = {engine.weight_version for engine in engines if engine.weight_version}
        columns |= {"weight_version": versions.pop() if len(versions) == 1 else ""}
    else:
        broken = (
            [engine for engine in engines if engine.state not in ENDED]
            if transition.to == "COMPLETED"
            else []
        )
    recorded = {failed["engine_id"] for failed in request.failed_engines}
    added = [_failure_document(engine) for engine in broken if engine.name not in recorded]
    return columns | {"failed_engines": [*request.failed_engines, *added]}


def _apply_status(request: ScaleRequest, engines: list[InferenceEngine], now: datetime) -> bool:
    """Drain or remove the request's engines if its status requires that.

    Return whether an engine's state changed. Idempotent.
    """
    if request.status not in ("ROLLING_BACK", "DRAINING"):
        return False
    any_changed = False
    for engine in engines:
        if engine.state not in (*ENDED, "DRAINING", "REMOVING"):
            any_changed |= (
                _drain_or_remove(engine, now)
                if request.status == "ROLLING_BACK"
                else transition_engine(engine, "DRAINING", now=now)
            )
    return any_changed


def _drain_or_remove(engine: InferenceEngine, now: datetime) -> bool:
    """Drain the engine if it is registered with a router, otherwise remove it.

    Return whether its state changed.
    """
    if engine.is_routed:
        return transition_engine(engine, "DRAINING", now=now, message="Rolled back.")
    return _start_removal(engine, "REMOVED", "", engine.message or "Rolled back.", now)


def _handle_timeout(
    request: ScaleRequest,
    timed_out: list[InferenceEngine],
    transition: request_rules.RequestTransition,
    now: datetime,
) -> None:
    failed = [
        *request.failed_engines,
        *(
            {**_failure_document(engine), "failure": transition.failure, "message": transition.message}
            for engine in timed_out
        ),
    ]
    for engine in timed_out:
        if request.direction == "scale_out":
            _start_removal(engine, "FAILED", transition.failure, transition.message, now)
        else:
            transition_engine(engine, "ACTIVE", now=now, removed_by=None)
    request.failed_engines, request.error_message = failed, transition.message
    request.updated_at = now
    request.save(update_fields=["failed_engines", "error_message", "updated_at"])


def _request_engines(request: ScaleRequest) -> list[InferenceEngine]:
    rows = request.added if request.direction == "scale_out" else request.removed
    engines = list(rows.select_related("workload").order_by("number"))
    for engine in engines:
        engine.service = request.service
    return engines


def _engine_summary(engine: InferenceEngine) -> request_rules.EngineSummary:
    return request_rules.EngineSummary(
        engine.name, engine.state, engine.ends_as, engine.failure, engine.message,
        engine.isolated_at is not None, engine.router_message != "",
    )  # fmt: skip


def _failure_document(engine: InferenceEngine) -> dict[str, str]:
    return {
        "engine_id": engine.name, "url": engine.url, "failure": engine.failure, "message": engine.message,
    }  # fmt: skip


def _are_weights_changing(service: Service) -> bool:
    return service.updating_since is not None or service.syncing_since is not None
