"""Begin and end weight updates, in which a trainer changes the weights of a service's initial engines."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict
from berth.db.loops.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Service
from projects.services import announce, audit
from projects.services.inference.requests import lock_service


def begin_update(*, actor: Actor, service: Service, now: datetime | None = None) -> Service:
    """Pause weight copies and drains of the service's inference engines until `end_update` is called.

    Idempotent. Raises Conflict while weights are being copied.
    """
    require(actor, Action.OPERATE, service.workload)
    with transaction.atomic():
        row = lock_service(service)
        if row.syncing_since is not None:
            raise Conflict("Weights are being copied to new engines. Try again in a moment.")
        if row.updating_since is None:
            _set_updating_since(row, now or timezone.now())
            _audit_update(actor, "begin_weight_update", row)
    return row


def end_update(*, actor: Actor, service: Service) -> Service:
    """End the update.

    Added inference engines then copy the new weights of the initial engines. Idempotent.
    """
    require(actor, Action.OPERATE, service.workload)
    with transaction.atomic():
        row = lock_service(service)
        if row.updating_since is not None:
            _set_updating_since(row, None)
            _audit_update(actor, "end_weight_update", row)
            wake("services")
    return row


def _set_updating_since(row: Service, since: datetime | None) -> None:
    Service.objects.filter(pk=row.pk).update(updating_since=since)
    row.updating_since = since
    announce.workload_changed(row.workload)


def _audit_update(actor: Actor, action: audit.AuditAction, row: Service) -> None:
    audit.write_entry(actor, action, row, project=row.workload.project)
