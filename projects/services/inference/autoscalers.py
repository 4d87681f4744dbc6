"""Configure, enable and disable autoscalers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction

from berth.core.errors import Invalid
from berth.db.loops.wake import wake
from projects.access import Action, require
from projects.actor import Actor
from projects.engine.replicas import document
from projects.engine.replicas.config import AutoscalerConfig
from projects.models import Autoscaler, Service
from projects.services import announce, audit


def validate_settings(settings: Mapping[str, Any], *, at: str = "") -> dict[str, Any]:
    """Return the settings with all defaults filled in. Raises Invalid with every problem."""
    config, problems = document.parse(settings)
    if problems:
        prefix = f"{at}." if at else ""
        raise Invalid([replace(problem, path=f"{prefix}{problem.path}".rstrip(".")) for problem in problems])
    return document.to_document(config)


def load_config(row: Autoscaler) -> AutoscalerConfig:
    """Return the stored settings.

    `enabled` has a separate database column, because it can be changed independently.
    """
    config, _ = document.parse(row.settings)
    return replace(config, enabled=row.enabled)


def full_settings(row: Autoscaler) -> dict[str, Any]:
    """Return the settings as a document, with every default and the current value of `enabled`."""
    return document.to_document(load_config(row))


def configure(*, actor: Actor, service: Service, settings: Mapping[str, Any]) -> Autoscaler:
    """Replace all settings, including `enabled`. Missing keys are set to their defaults."""
    require(actor, Action.OPERATE, service.workload)
    checked = validate_settings(settings)
    with transaction.atomic():
        row = _lock_autoscaler(service)
        before = {"enabled": row.enabled, "settings": row.settings}
        row.settings, row.enabled = checked, bool(checked["enabled"])
        row.save(update_fields=["settings", "enabled"])
        after = {"enabled": row.enabled, "settings": row.settings}
        _audit_change(actor, "configure_autoscaler", service, row, before, after)
    return row


def enable(*, actor: Actor, service: Service, enabled: bool) -> Autoscaler:
    """Enable or disable the autoscaler. Idempotent.

    Metrics collected while the autoscaler was disabled still count.
    """
    require(actor, Action.OPERATE, service.workload)
    with transaction.atomic():
        row = _lock_autoscaler(service)
        if row.enabled == enabled:
            return row
        row.enabled = enabled
        row.save(update_fields=["enabled"])
        _audit_change(
            actor, "enable_autoscaler", service, row, {"enabled": not enabled}, {"enabled": enabled}
        )
    return row


def update_columns(service: Service, **columns: Any) -> None:
    """Update columns that the service loop maintains, in the caller's transaction."""
    Autoscaler.objects.filter(service=service).update(**columns)


def _lock_autoscaler(service: Service) -> Autoscaler:
    return Autoscaler.objects.select_for_update(of=("self",)).get(service=service)


def _audit_change(
    actor: Actor,
    action: audit.AuditAction,
    service: Service,
    row: Autoscaler,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    old_values, new_values = audit.changed_values(before, after)
    audit.write_entry(
        actor, action, row, before=old_values, after=new_values, project=service.workload.project
    )
    announce.workload_changed(service.workload)
    wake("services")
