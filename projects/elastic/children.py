"""Create and remove the workloads of a service's engines."""

import contextlib
import logging
from datetime import datetime
from typing import Any

from django.db import transaction

from berth.core.errors import BerthError, Conflict
from projects.acting import Acting
from projects.models import Engine, ScaleRequest, Service, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services import workloads
from projects.services.inference.rules import engine_count, settings_of

log = logging.getLogger(__name__)

BERTH = Acting.system("services")
OF_THE_GANG = (
    "service", "depends_on", "notifications", "need", "topology", "groups", "roles", "submitted", "deadline",
    "max_runtime", "idle_timeout",
)  # fmt: skip
NAME_MAX = 63


def create_engines(request: ScaleRequest, now: datetime) -> None:
    """In the caller's transaction, under the lock of the service's row: rows, and workloads in the queue."""
    service = request.service
    if request.mode == "external":
        for url in request.engine_urls:
            _engine(request, now, origin="external", state="CONNECTING", url=url)
        return
    for _ in range(request.num_replicas - engine_count(service)):
        engine = _engine(request, now, origin="managed", state="CREATING")
        _employ(engine, now)


def dismiss(engine: Engine, now: datetime) -> None:
    """Its workload is told to end; the scheduler stops what runs, and kills what does not stop."""
    workload = engine.workload
    if engine.origin != "managed" or workload is None or workload.phase in ENDED_PHASES:
        return
    with contextlib.suppress(Conflict):  # it is on its way out for another cause
        workloads.cancel(acting=BERTH, workload=workload, now=now)


def document_of(service: Service, number: int) -> dict[str, Any]:
    """The service's own document, for one replica of the role whose replicas are engines."""
    base = service.workload
    told = settings_of(base)
    role = next(role for role in _roles(base.spec) if role.get("name", "worker") == service.role)
    one = {key: value for key, value in role.items() if key not in ("min", "max", "replicas")}
    kept = {key: value for key, value in base.spec.items() if key not in OF_THE_GANG}
    suffix = f"-e{number}"
    return {
        **kept,
        "name": base.name[: NAME_MAX - len(suffix)].rstrip("-") + suffix,
        "project": base.project.name,
        "pools": list(base.pools),
        "kind": "service",
        "labels": {**base.labels, "service": base.name},
        "grace_period_seconds": int(told.scale_in_shutdown_timeout),
        "roles": [{**one, "replicas": 1}],
    }


def _roles(node: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [role for group in node.get("groups") or () for role in _roles(group)]
    return [*(node.get("roles") or ()), *inner]


def _engine(request: ScaleRequest, now: datetime, **columns: Any) -> Engine:
    service = request.service
    engine = Engine.objects.create(
        service=service, number=service.next_number, since=now, created_at=now, added_by=request, **columns
    )
    service.next_number += 1
    Service.objects.filter(pk=service.pk).update(next_number=service.next_number)
    return engine


def _employ(engine: Engine, now: datetime) -> None:
    """What cannot be submitted is an engine that failed, not a pass that did."""
    base = engine.service.workload
    try:
        with transaction.atomic():
            child = workloads.submit(
                acting=BERTH,
                document=document_of(engine.service, engine.number),
                project=base.project,
                now=now,
            )
    except BerthError as error:
        log.warning("no workload for %s of %s: %s", engine.name, base.name, error)
        engine.state, engine.ends_as = "REMOVING", "FAILED"
        engine.failure, engine.message = "provision", str(error)
        engine.save(update_fields=["state", "ends_as", "failure", "message"])
        return
    Workload.objects.filter(pk=child.pk).update(submitted_by=base.submitted_by_id)
    engine.workload = child
    engine.save(update_fields=["workload"])
