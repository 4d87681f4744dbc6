"""Begin and end a trainer's weight update of a service's initial engines."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict
from berth.db.wake import wake
from projects.access import Action, require
from projects.acting import Acting
from projects.models import Service
from projects.services import announce, audit
from projects.services.inference.requests import locked


def begin(*, acting: Acting, service: Service, now: datetime | None = None) -> Service:
    """Pause weight copies and drains of the service's engines until `end`. Idempotent."""
    require(acting, Action.OPERATE, service.workload)
    with transaction.atomic():
        row = locked(service)
        if row.syncing_since is not None:
            raise Conflict("Weights are being copied to added engines. Try again in a moment.")
        if row.updating_since is None:
            _set(row, now or timezone.now())
            _audit(acting, "begin_weight_update", row)
    return row


def end(*, acting: Acting, service: Service) -> Service:
    """End the update. Added engines then copy the weights of the initial engines. Idempotent."""
    require(acting, Action.OPERATE, service.workload)
    with transaction.atomic():
        row = locked(service)
        if row.updating_since is not None:
            _set(row, None)
            _audit(acting, "end_weight_update", row)
            wake("services")
    return row


def _set(row: Service, since: datetime | None) -> None:
    Service.objects.filter(pk=row.pk).update(updating_since=since)
    row.updating_since = since
    announce.workload_changed(row.workload)


def _audit(acting: Acting, action: str, row: Service) -> None:
    audit.write_down(acting, action, row, project=row.workload.project)
