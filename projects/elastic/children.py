"""Create and cancel the workloads of a service's inference engines."""

import contextlib
import logging
from datetime import datetime
from typing import Any

from django.db import transaction

from berth.core.errors import BerthError, Conflict
from projects.actor import Actor
from projects.models import InferenceEngine, ScaleRequest, Service, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services import workloads
from projects.services.inference.rules import engine_count, service_settings

log = logging.getLogger(__name__)

BERTH = Actor.system("services")
NOT_INHERITED = (
    "service", "after", "notifications", "need", "topology", "groups", "roles", "submitted", "deadline",
    "max_runtime", "idle_timeout",
)  # fmt: skip
NAME_MAX = 63


def create_engines(request: ScaleRequest, now: datetime) -> None:
    """Create the request's inference engines, and submit the workloads of managed engines.

    The caller must hold the lock on the service.
    """
    service = request.service
    if request.mode == "external":
        for url in request.engine_urls:
            _create_engine(request, now, origin="external", state="CONNECTING", url=url)
        return
    for _ in range(request.num_replicas - engine_count(service)):
        engine = _create_engine(request, now, origin="managed", state="CREATING")
        _submit_workload(engine, now)


def cancel_workload(engine: InferenceEngine, now: datetime) -> None:
    """Cancel the workload of a managed inference engine, so that the scheduler stops its pods."""
    workload = engine.workload
    if engine.origin != "managed" or workload is None or workload.phase in ENDED_PHASES:
        return
    with contextlib.suppress(Conflict):  # the workload is already stopping
        workloads.cancel(actor=BERTH, workload=workload, now=now)


def engine_document(service: Service, number: int) -> dict[str, Any]:
    """Return the service's document, reduced to a single replica of the inference engine role."""
    base = service.workload
    settings = service_settings(base)
    role = next(role for role in _flatten_roles(base.spec) if role.get("name", "worker") == service.role)
    role_spec = {key: value for key, value in role.items() if key not in ("min", "max", "replicas")}
    inherited = {key: value for key, value in base.spec.items() if key not in NOT_INHERITED}
    suffix = f"-e{number}"
    return {
        **inherited,
        "name": base.name[: NAME_MAX - len(suffix)].rstrip("-") + suffix,
        "project": base.project.name,
        "pools": list(base.pools),
        "kind": "service",
        "labels": {**base.labels, "service": base.name},
        "grace_period_seconds": int(settings.scale_in_shutdown_timeout),
        "roles": [{**role_spec, "replicas": 1}],
    }


def _flatten_roles(node: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [role for group in node.get("groups") or () for role in _flatten_roles(group)]
    return [*(node.get("roles") or ()), *inner]


def _create_engine(request: ScaleRequest, now: datetime, **columns: Any) -> InferenceEngine:
    service = request.service
    engine = InferenceEngine.objects.create(
        service=service, number=service.next_number, since=now, created_at=now, added_by=request, **columns
    )
    service.next_number += 1
    Service.objects.filter(pk=service.pk).update(next_number=service.next_number)
    return engine


def _submit_workload(engine: InferenceEngine, now: datetime) -> None:
    """Submit the inference engine's workload. If that fails, mark the engine as failed."""
    base = engine.service.workload
    try:
        with transaction.atomic():
            child = workloads.submit(
                actor=BERTH,
                document=engine_document(engine.service, engine.number),
                project=base.project,
                now=now,
            )
    except BerthError as error:
        log.warning("could not submit a workload for %s of %s: %s", engine.name, base.name, error)
        engine.state, engine.ends_as = "REMOVING", "FAILED"
        engine.failure, engine.message = "provision", str(error)
        engine.save(update_fields=["state", "ends_as", "failure", "message"])
        return
    Workload.objects.filter(pk=child.pk).update(submitted_by=base.submitted_by_id)
    engine.workload = child
    engine.save(update_fields=["workload"])
