"""Columns of the audit list: action, object, project and changed values."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Model
from django.utils.text import capfirst

from pools.models import Node, NodePool
from projects.actor import Actor
from projects.models import (
    ApiToken,
    Audit,
    Department,
    Project,
    Quota,
    Service,
    Workload,
)
from projects.web.activity.entries import ActivityEntry, describe_entries

# Objects with a page on the admin site.
MODELS: Mapping[str, type[Model]] = {
    "apitoken": ApiToken, "department": Department, "node": Node, "nodepool": NodePool, "project": Project,
    "quota": Quota, "service": Service, "user": User, "workload": Workload,
}  # fmt: skip
ROLE_ACTIONS = {"grant": "Granted role", "revoke": "Revoked role"}
BEFORE_OBJECT = re.compile(r" (?:of|about)(?: the)?(?: node pool)?$")


@dataclass(frozen=True, slots=True)
class AuditColumns:
    """Columns of an audit entry. `model` is the object's model, or None if the object no longer exists."""

    entry: ActivityEntry
    action: str
    details: str
    project: Project | None
    model: type[Model] | None


def audit_columns(actor: Actor, rows: Sequence[Audit]) -> list[AuditColumns]:
    """Return the columns of each entry. The number of queries does not depend on the number of rows."""
    projects = Project.objects.in_bulk({row.project_id for row in rows if row.project_id})
    stored = _stored_objects(rows)
    return [
        AuditColumns(
            entry,
            _action(entry),
            _details(entry, project),
            project,
            MODELS[entry.row.object_type] if (entry.row.object_type, entry.row.object_id) in stored else None,
        )
        for entry in describe_entries(actor, rows)
        for project in [projects.get(entry.row.project_id or 0)]
    ]


def _stored_objects(rows: Iterable[Audit]) -> set[tuple[str, str]]:
    ids: dict[str, set[str]] = {}
    for row in rows:
        if row.object_type in MODELS and _is_valid_key(MODELS[row.object_type], row.object_id):
            ids.setdefault(row.object_type, set()).add(row.object_id)
    return {
        (kind, str(key))
        for kind, keys in ids.items()
        for key in MODELS[kind]._default_manager.filter(pk__in=keys).values_list("pk", flat=True)
    }


def _is_valid_key(model: type[Model], key: str) -> bool:
    """Return whether the text can be a primary key.

    In audit entries about pruning, the key is not valid because these entries refer to no object.
    """
    try:
        model._meta.pk.to_python(key)
    except (ValueError, ValidationError):
        return False
    return True


def _action(entry: ActivityEntry) -> str:
    """Return the action without the object, such as "Changed quota" or "Submitted workload"."""
    if entry.row.object_type == "membership":
        return ROLE_ACTIONS.get(entry.row.action, "Changed role")
    return capfirst(BEFORE_OBJECT.sub("", entry.verb).replace(" the ", " "))


def _details(entry: ActivityEntry, project: Project | None) -> str:
    """Return the changed values, without the project, which has its own column."""
    text = entry.tail
    if project is not None:
        text = re.sub(rf"^ (?:in|of) {re.escape(project.name)}(?![\w-])", "", text)
    return re.sub(r"^(?:: |, | a | )", "", text)
