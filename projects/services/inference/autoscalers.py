"""Configure, enable and disable autoscalers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction

from berth.core.errors import Invalid
from berth.db.wake import wake
from projects.access import Action, require
from projects.acting import Acting
from projects.engine.replicas import document
from projects.engine.replicas.config import AutoscalerConfig
from projects.models import Autoscaler, Service
from projects.services import announce, audit


def checked_settings(given: Mapping[str, Any], *, at: str = "") -> dict[str, Any]:
    """As they are kept: every field written out. Raises Invalid with all that is wrong."""
    config, problems = document.parsed(given)
    if problems:
        prefix = f"{at}." if at else ""
        raise Invalid([replace(problem, path=f"{prefix}{problem.path}".rstrip(".")) for problem in problems])
    return document.written(config)


def config_of(row: Autoscaler) -> AutoscalerConfig:
    """Whether it is on stands in the row: it can be switched without touching the settings."""
    config, _ = document.parsed(row.settings)
    return replace(config, enabled=row.enabled)


def settings_in_full(row: Autoscaler) -> dict[str, Any]:
    """With every default, and whether it is on now."""
    return document.written(config_of(row))


def configure(*, acting: Acting, service: Service, settings: Mapping[str, Any]) -> Autoscaler:
    """All settings anew; what is left out has its default. `enabled` switches it, too."""
    require(acting, Action.OPERATE, service.workload)
    kept = checked_settings(settings)
    with transaction.atomic():
        row = _locked(service)
        before = {"enabled": row.enabled, "settings": row.settings}
        row.settings, row.enabled = kept, bool(kept["enabled"])
        row.save(update_fields=["settings", "enabled"])
        after = {"enabled": row.enabled, "settings": row.settings}
        _told(acting, "configure_autoscaler", service, row, before, after)
    return row


def enable(*, acting: Acting, service: Service, enabled: bool) -> Autoscaler:
    """Again: no change. What it saw while it was off counts."""
    require(acting, Action.OPERATE, service.workload)
    with transaction.atomic():
        row = _locked(service)
        if row.enabled == enabled:
            return row
        row.enabled = enabled
        row.save(update_fields=["enabled"])
        _told(acting, "enable_autoscaler", service, row, {"enabled": not enabled}, {"enabled": enabled})
    return row


def remember(service: Service, **columns: Any) -> None:
    """What the loop saw and thought; in its own transaction."""
    Autoscaler.objects.filter(service=service).update(**columns)


def _locked(service: Service) -> Autoscaler:
    return Autoscaler.objects.select_for_update(of=("self",)).get(service=service)


def _told(
    acting: Acting,
    action: str,
    service: Service,
    row: Autoscaler,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    said_before, said_after = audit.differences(before, after)
    audit.write_down(
        acting, action, row, before=said_before, after=said_after, project=service.workload.project
    )
    announce.workload_changed(service.workload)
    wake("services")
