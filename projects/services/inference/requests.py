"""Create and cancel scale requests of services."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict, NotFound
from berth.core.problems import Problem
from berth.db.loops.wake import wake
from berth.db.queries.compiled import compiled_once
from projects.access import Action, require
from projects.actor import Actor
from projects.engine import scaling
from projects.models import InferenceEngine, Phase, ScaleRequest, Service
from projects.services import audit
from projects.services.inference.rules import (
    InvalidScaleRequest,
    ScaleParameters,
    check_parameters,
    check_target,
    engines_to_remove,
    is_identical_request,
    new_urls,
    no_change_reason,
    require_no_active_request,
    service_settings,
)
from projects.services.inference.transitions import store_request, transition_request

SERVICE_LOOP = "services"
LOCKED_SERVICE = compiled_once(
    lambda key: (
        Service.objects.select_for_update(of=("self",))
        .select_related("workload__project__department")
        .filter(pk=key)
    )
)


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """Accepted scale request.

    `request` is None for a dry run. `engines` are the inference engines to remove.
    """

    request: ScaleRequest | None
    status: str
    message: str
    engines: Sequence[InferenceEngine] = ()


def lock_service(service: Service) -> Service:
    """Lock the service's row, so that all changes to its inference engines are serialized.

    Raises NotFound.
    """
    row = next(iter(LOCKED_SERVICE(service.pk)), None)
    if row is None:
        raise NotFound("This service has been deleted.")
    return row


def scale_out(
    *, actor: Actor, service: Service, parameters: ScaleParameters, now: datetime | None = None
) -> AcceptedRequest:
    require(actor, Action.OPERATE, service.workload)
    check_parameters(service, parameters)
    if parameters.num_replicas > 0 and parameters.urls:
        received = f"num_replicas {parameters.num_replicas} and {len(parameters.urls)} addresses"
        raise InvalidScaleRequest(
            [
                Problem(
                    "engine_urls",
                    "cannot be combined with num_replicas",
                    received,
                    "either num_replicas or engine_urls",
                )
            ]
        )
    at = now or timezone.now()
    with transaction.atomic():
        row = _lock_live_service(service)
        running = active_request(row)
        urls = new_urls(row, parameters, running)
        if running is not None and is_identical_request(running, "scale_out", parameters):
            return AcceptedRequest(running, running.status, "An identical request is already in progress.")
        if message := no_change_reason(row, parameters, running, urls):
            return _complete_without_changes(actor, row, "scale_out", parameters, message, at)
        require_no_active_request(running)
        settings = service_settings(row.workload)
        request = _build_request(actor, row, "scale_out", parameters, settings.scale_out_timeout, at)
        request.engine_urls, request.policy = urls, settings.scale_out_partial_success_policy
        store_request(request)
        _audit(actor, request)
        wake(SERVICE_LOOP)
    return AcceptedRequest(request, request.status, "Scale-out request accepted")


def scale_in(
    *,
    actor: Actor,
    service: Service,
    parameters: ScaleParameters,
    dry_run: bool = False,
    now: datetime | None = None,
) -> AcceptedRequest:
    require(actor, Action.OPERATE, service.workload)
    check_parameters(service, parameters)
    check_target(service, parameters)
    at = now or timezone.now()
    with transaction.atomic():
        row = _lock_live_service(service)
        running = active_request(row)
        if not dry_run and running is not None and is_identical_request(running, "scale_in", parameters):
            return AcceptedRequest(running, running.status, "An identical request is already in progress.")
        removed = engines_to_remove(row, parameters)
        if dry_run:
            return AcceptedRequest(None, "DRY_RUN", _dry_run_message(removed), removed)
        require_no_active_request(running)
        if not removed:
            return _complete_without_changes(
                actor, row, "scale_in", parameters, "The service has no more engines than requested.", at
            )
        settings = service_settings(row.workload)
        timeout = settings.scale_in_drain_timeout + settings.scale_in_shutdown_timeout + 60.0
        request = _build_request(actor, row, "scale_in", parameters, timeout, at)
        store_request(request)
        InferenceEngine.objects.filter(pk__in=[engine.pk for engine in removed]).update(removed_by=request)
        _audit(actor, request)
        wake(SERVICE_LOOP)
    return AcceptedRequest(request, request.status, "Scale-in request accepted", removed)


def cancel(*, actor: Actor, request: ScaleRequest, now: datetime | None = None) -> ScaleRequest:
    """Cancel a scale-out, so that the engines that it added are removed.

    Idempotent. Raises Conflict for a scale-in or an ended request.
    """
    service = request.service
    require(actor, Action.OPERATE, service.workload)
    at = now or timezone.now()
    with transaction.atomic():
        lock_service(service)
        row = ScaleRequest.objects.select_related("service__workload__project").get(pk=request.pk)
        if row.status == "CANCELLED" or row.ends_as == "CANCELLED":
            return row
        if row.direction != "scale_out":
            raise Conflict("A scale-in cannot be cancelled. To restore the removed engines, scale out.")
        if row.is_final:
            raise Conflict(f"This request has already ended ({row.status}) and cannot be cancelled.")
        if row.status == "ROLLING_BACK":
            raise Conflict("This request has failed and is already being rolled back.")
        _roll_back(row, f"Cancelled by {actor.name}.", at)
        audit.write_entry(actor, "cancel", row, project=row.service.workload.project)
        wake(SERVICE_LOOP)
    return row


def _roll_back(row: ScaleRequest, message: str, at: datetime) -> None:
    if row.status == "PENDING":
        transition_request(row, "CANCELLED", now=at, message=message, error_message=message)
    else:
        transition_request(
            row, "ROLLING_BACK", now=at, message=message, ends_as="CANCELLED", error_message=message
        )


def cancel_many(
    *,
    actor: Actor,
    service: Service,
    status_filter: Collection[str] = (),
    dry_run: bool = False,
    now: datetime | None = None,
) -> list[ScaleRequest]:
    """Cancel open scale-out requests and return them. If `dry_run` is set, only return them."""
    require(actor, Action.OPERATE, service.workload)
    rows = service.requests.filter(direction="scale_out").exclude(status__in=[*scaling.FINAL, "ROLLING_BACK"])
    if status_filter:
        rows = rows.filter(status__in=list(status_filter))
    matching = list(rows.select_related("service__workload__project").order_by("created_at", "pk"))
    return matching if dry_run else [cancel(actor=actor, request=row, now=now) for row in matching]


def _lock_live_service(service: Service) -> Service:
    row = lock_service(service)
    if row.ended_at is not None or row.workload.phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED):
        raise Conflict(f"This service has ended ({row.workload.phase}). Resubmit the workload.")
    return row


def active_request(service: Service) -> ScaleRequest | None:
    """Return the service's scale request in progress, or None if there is none."""
    return (
        service.requests.exclude(status__in=scaling.FINAL)
        .select_related("service__workload__project")
        .first()
    )


def _complete_without_changes(
    actor: Actor, service: Service, direction: str, parameters: ScaleParameters, message: str, at: datetime
) -> AcceptedRequest:
    request = _build_request(actor, service, direction, parameters, 1.0, at)
    request.status, request.ended_at = "NOOP", at
    store_request(request, message=message)
    return AcceptedRequest(request, "NOOP", message)


def _build_request(
    actor: Actor,
    service: Service,
    direction: str,
    parameters: ScaleParameters,
    timeout: float,
    at: datetime,
) -> ScaleRequest:
    seconds = parameters.timeout_secs if parameters.timeout_secs is not None else timeout
    return ScaleRequest(
        service=service, direction=direction, mode="managed" if parameters.num_replicas > 0 else "external",
        model_name=service.model_name, num_replicas=parameters.num_replicas,
        engine_urls=[] if parameters.num_replicas > 0 else list(parameters.urls), timeout_secs=seconds,
        force=parameters.force,
        requested_by=actor.name, by_autoscaler=parameters.by_autoscaler, reason=parameters.reason,
        created_at=at, updated_at=at, deadline=at + timedelta(seconds=seconds),
    )  # fmt: skip


def _dry_run_message(removed: Sequence[InferenceEngine]) -> str:
    names = ", ".join(engine.name for engine in removed)
    return f"Would remove {names}. Nothing was changed." if removed else "No engine would be removed."


def _audit(actor: Actor, request: ScaleRequest) -> None:
    after: dict[str, Any] = {"num_replicas": request.num_replicas, "engine_urls": request.engine_urls}
    action: audit.AuditAction = "scale_out" if request.direction == "scale_out" else "scale_in"
    audit.write_entry(actor, action, request, after=after, project=request.service.workload.project)
