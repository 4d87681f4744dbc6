"""Rules for changing schedules and templates, which belong to a project and to the user who stored them."""

import time
from typing import Any

from berth.core.errors import PreconditionFailed
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Project, Schedule, Template
from projects.services import announce, audit


def may_change_row(actor: Actor, project: Project, owner_id: int | None) -> bool:
    """Return whether the user may change a row of the project.

    Project admins may change every row. Other users may change their own rows while they may submit to the
    project.
    """
    if may(actor, Action.OPERATE, project):
        return True
    is_owner = actor.user is not None and actor.user.pk == owner_id
    return is_owner and may(actor, Action.SUBMIT, project)


def check_version(row: Schedule | Template | None, expected: int | None, noun: str) -> None:
    current = row.version if row else 0
    if expected is not None and expected != current:
        raise PreconditionFailed(
            f"This {noun} has changed since you read it. Reload and try again."
            if row
            else f"This {noun} does not exist.",
            version=current,
        )


def next_version(version: int) -> int:
    """Return a version derived from the clock, so that a new row never reuses the version of a
    deleted row.
    """
    return max(version + 1, time.time_ns() // 1000)


def audit_change(
    actor: Actor,
    action: audit.AuditAction,
    row: Schedule | Template,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    audit.write_change(actor, action, row, before, after, project=row.project)
    announce.tenants_changed(project_id=row.project_id)
