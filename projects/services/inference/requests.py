"""Request more or fewer engines, and cancel requests."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict, NotFound
from berth.core.problems import Problem
from berth.db.wake import wake
from projects.access import Action, require
from projects.acting import Acting
from projects.engine import scaling
from projects.models import Engine, Phase, ScaleRequest, Service
from projects.services import audit
from projects.services.inference.moves import enter, open_request
from projects.services.inference.rules import (
    BadScaling,
    Wish,
    check_target,
    check_wish,
    chosen,
    is_same,
    new_urls,
    nothing_to_add,
    refuse_if_running,
    settings_of,
)

WAKES = "services"


@dataclass(frozen=True, slots=True)
class Accepted:
    """`request` is None for a dry run; `engines` are those that would go."""

    request: ScaleRequest | None
    status: str
    message: str
    engines: Sequence[Engine] = ()


def locked(service: Service) -> Service:
    """The one row that everybody who changes a service's engines waits at."""
    rows = Service.objects.select_for_update(of=("self",)).select_related("workload__project__department")
    found = rows.filter(pk=service.pk).first()
    if found is None:
        raise NotFound("This service was deleted.")
    return found


def scale_out(*, acting: Acting, service: Service, wish: Wish, now: datetime | None = None) -> Accepted:
    require(acting, Action.OPERATE, service.workload)
    check_wish(service, wish)
    if wish.num_replicas > 0 and wish.urls:
        given = f"num_replicas {wish.num_replicas} and {len(wish.urls)} addresses"
        raise BadScaling(
            [Problem("engine_urls", "given together with num_replicas", given, "one of the two")]
        )
    at = now or timezone.now()
    with transaction.atomic():
        row = _of_living(service)
        running = _open(row)
        urls = new_urls(row, wish, running)
        if running is not None and is_same(running, "scale_out", wish):
            return Accepted(running, running.status, "This request is under way already.")
        if said := nothing_to_add(row, wish, running, urls):
            return _noop(acting, row, "scale_out", wish, said, at)
        refuse_if_running(running)
        told = settings_of(row.workload)
        request = _request(acting, row, "scale_out", wish, told.scale_out_timeout, at)
        request.engine_urls, request.policy = urls, told.scale_out_partial_success_policy
        open_request(request)
        _audit(acting, request)
        wake(WAKES)
    return Accepted(request, request.status, "Scale-out request accepted")


def scale_in(
    *, acting: Acting, service: Service, wish: Wish, dry_run: bool = False, now: datetime | None = None
) -> Accepted:
    require(acting, Action.OPERATE, service.workload)
    check_wish(service, wish)
    check_target(service, wish)
    at = now or timezone.now()
    with transaction.atomic():
        row = _of_living(service)
        running = _open(row)
        if not dry_run and running is not None and is_same(running, "scale_in", wish):
            return Accepted(running, running.status, "This request is under way already.")
        going = chosen(row, wish)
        if dry_run:
            return Accepted(None, "DRY_RUN", _would_go(going), going)
        refuse_if_running(running)
        if not going:
            return _noop(acting, row, "scale_in", wish, "There are no more engines than that already.", at)
        told = settings_of(row.workload)
        patience = told.scale_in_drain_timeout + told.scale_in_shutdown_timeout + 60.0
        request = _request(acting, row, "scale_in", wish, patience, at)
        open_request(request)
        Engine.objects.filter(pk__in=[engine.pk for engine in going]).update(removed_by=request)
        _audit(acting, request)
        wake(WAKES)
    return Accepted(request, request.status, "Scale-in request accepted", going)


def cancel(*, acting: Acting, request: ScaleRequest, now: datetime | None = None) -> ScaleRequest:
    """Takes a scale-out back, whatever it has come to. Again: no change."""
    service = request.service
    require(acting, Action.OPERATE, service.workload)
    at = now or timezone.now()
    with transaction.atomic():
        locked(service)
        row = ScaleRequest.objects.select_related("service__workload__project").get(pk=request.pk)
        if row.status == "CANCELLED" or row.ends_as == "CANCELLED":
            return row
        if row.direction != "scale_out":
            raise Conflict(
                "A scale-in cannot be cancelled: engines that left do not come back by themselves."
            )
        if row.is_final:
            raise Conflict(f"It has ended already ({row.status}).")
        if row.status == "ROLLING_BACK":
            raise Conflict("It has failed, and what it made is being released already.")
        _take_back(row, f"Cancelled by {acting.name}.", at)
        audit.write_down(acting, "cancel", row, project=row.service.workload.project)
        wake(WAKES)
    return row


def _take_back(row: ScaleRequest, said: str, at: datetime) -> None:
    if row.status == "PENDING":
        enter(row, "CANCELLED", now=at, message=said, error_message=said)
    else:
        enter(row, "ROLLING_BACK", now=at, message=said, ends_as="CANCELLED", error_message=said)


def cancel_many(
    *,
    acting: Acting,
    service: Service,
    status_filter: Collection[str] = (),
    dry_run: bool = False,
    now: datetime | None = None,
) -> list[ScaleRequest]:
    """Those that are, or with `dry_run` would be, cancelled."""
    require(acting, Action.OPERATE, service.workload)
    rows = service.requests.filter(direction="scale_out").exclude(status__in=[*scaling.FINAL, "ROLLING_BACK"])
    if status_filter:
        rows = rows.filter(status__in=list(status_filter))
    found = list(rows.select_related("service__workload__project").order_by("created_at", "pk"))
    return found if dry_run else [cancel(acting=acting, request=row, now=now) for row in found]


def _of_living(service: Service) -> Service:
    row = locked(service)
    if row.ended_at is not None or row.workload.phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED):
        raise Conflict(f"The service has ended ({row.workload.phase}).")
    return row


def _open(service: Service) -> ScaleRequest | None:
    return (
        service.requests.exclude(status__in=scaling.FINAL)
        .select_related("service__workload__project")
        .first()
    )


def _noop(acting: Acting, service: Service, direction: str, wish: Wish, said: str, at: datetime) -> Accepted:
    request = _request(acting, service, direction, wish, 1.0, at)
    request.status, request.ended_at = "NOOP", at
    open_request(request, message=said)
    return Accepted(request, "NOOP", said)


def _request(
    acting: Acting, service: Service, direction: str, wish: Wish, patience: float, at: datetime
) -> ScaleRequest:
    seconds = wish.timeout_secs if wish.timeout_secs is not None else patience
    return ScaleRequest(
        service=service, direction=direction, mode="managed" if wish.num_replicas > 0 else "external",
        model_name=service.model_name, num_replicas=wish.num_replicas,
        engine_urls=[] if wish.num_replicas > 0 else list(wish.urls), timeout_secs=seconds, force=wish.force,
        asked_by=acting.name, by_autoscaler=wish.by_autoscaler, reason=wish.reason, created_at=at,
        updated_at=at, deadline=at + timedelta(seconds=seconds),
    )  # fmt: skip


def _would_go(going: Sequence[Engine]) -> str:
    names = ", ".join(engine.name for engine in going)
    return f"Would remove {names}; nothing was removed." if going else "Nothing would be removed."


def _audit(acting: Acting, request: ScaleRequest) -> None:
    after: dict[str, Any] = {"num_replicas": request.num_replicas, "engine_urls": request.engine_urls}
    audit.write_down(
        acting, request.direction, request, after=after, project=request.service.workload.project
    )
