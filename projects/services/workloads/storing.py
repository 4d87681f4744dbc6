"""Store submitted workloads with their roles, events, audit entries and response in one query."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db.models import Model
from pydantic_core import to_json

from berth.core.spec import GroupShape, RoleShape
from berth.db.queries import prepared
from berth.db.writes import stored_responses
from berth.db.writes.stored_responses import ResponseRow
from projects.models import Audit, Event, Workload, WorkloadRole


def _column_names(model: type[Model], *excluded: str) -> list[str]:
    columns = (str(field.column) for field in model._meta.concrete_fields)
    return [column for column in columns if column not in excluded]


def _quote_columns(columns: Iterable[str], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{name}"' for name in columns)


WORKLOAD_COLUMNS = _column_names(Workload)
ROLE_COLUMNS = _column_names(WorkloadRole, "id")
EVENT_COLUMNS = _column_names(Event, "id", "at")
AUDIT_COLUMNS = _column_names(Audit, "id", "at")

# A row is skipped if its name belongs to a live workload or an active array of the project.
INSERT = f"""
WITH stored AS (
    INSERT INTO projects_workload ({_quote_columns(WORKLOAD_COLUMNS)})
    SELECT {_quote_columns(WORKLOAD_COLUMNS)} FROM json_populate_recordset(NULL::projects_workload, %s) new
    WHERE (  -- not a join, which would not keep the order of the rows
        SELECT true FROM projects_workloadarray array_ WHERE array_.project_id = new.project_id
           AND array_.name = new.name AND array_.state = 'active'
    ) IS NULL
    ON CONFLICT DO NOTHING
    RETURNING id
), roles AS (
    INSERT INTO projects_workloadrole ({_quote_columns(ROLE_COLUMNS)})
    SELECT {_quote_columns(ROLE_COLUMNS, "role.")}
    FROM json_populate_recordset(NULL::projects_workloadrole, %s) role
    JOIN stored ON stored.id = role.workload_id
), events AS (
    INSERT INTO projects_event ({_quote_columns(EVENT_COLUMNS)})
    SELECT {_quote_columns(EVENT_COLUMNS, "event.")}
    FROM json_populate_recordset(NULL::projects_event, %s) event
    JOIN stored ON stored.id = event.workload_id
), entries AS (
    INSERT INTO projects_audit ({_quote_columns(AUDIT_COLUMNS)})
    SELECT {_quote_columns(AUDIT_COLUMNS, "entry.")}
    FROM json_populate_recordset(NULL::projects_audit, %s) entry
    JOIN stored ON stored.id::text = entry.object_id
), responses AS (
    INSERT INTO {stored_responses.TABLE} ({_quote_columns(stored_responses.COLUMNS)})
    SELECT {_quote_columns(stored_responses.COLUMNS)}
    FROM json_populate_recordset(NULL::{stored_responses.TABLE}, %s)
    WHERE EXISTS (SELECT FROM stored)
)
SELECT id FROM stored
"""  # noqa: S608  (the names are those of the models)


def store_workloads(
    workloads: Sequence[tuple[Workload, GroupShape]],
    events: Sequence[Event],
    entries: Sequence[Audit],
    responses: Sequence[ResponseRow] = (),
) -> Collection[UUID]:
    """Insert workloads, and return the IDs of the inserted rows.

    A workload is skipped if a live workload or active array of the project has the same name. If all
    workloads are skipped, no responses are stored. Outside a transaction, raises IntegrityError if a project
    has been deleted or a response's key is already in use.
    """
    # Sort the rows, so that two requests with the same names do not deadlock.
    rows = sorted((row for row, _ in workloads), key=lambda row: (row.project_id, row.name))
    parameters = [
        to_json(_column_values(rows, WORKLOAD_COLUMNS)).decode(),
        to_json([role for row, tree in workloads for role in _role_rows(row.pk, tree)]).decode(),
        to_json(_column_values(events, EVENT_COLUMNS)).decode(),
        to_json(_column_values(entries, AUDIT_COLUMNS)).decode(),
        to_json([response.to_json() for response in responses]).decode(),
    ]
    return {row[0] for row in prepared.fetch_all(INSERT, parameters)}


def replace_roles(workload_id: UUID, tree: GroupShape) -> None:
    WorkloadRole.objects.filter(workload=workload_id).delete()
    WorkloadRole.objects.bulk_create(WorkloadRole(**values) for values in _role_rows(workload_id, tree))


def _column_values(rows: Iterable[Model], columns: Sequence[str]) -> list[dict[str, Any]]:
    values = attrgetter(*columns)
    return [dict(zip(columns, values(row), strict=True)) for row in rows]


def _role_rows(workload_id: UUID, tree: GroupShape) -> list[dict[str, Any]]:
    """Return the roles as rows, numbered in document order."""
    return [
        {
            "workload_id": workload_id, "position": position, "name": role.name,
            "min": role.min, "max": role.max, "gpu_milli": role.gpu, "gpu_devices": role.devices,
            "gpu_memory_mib": role.gpu_memory_mib, "cpu_milli": role.cpu, "memory_mib": role.memory_mib,
        }
        for position, role in enumerate(_leaf_roles(tree))
    ]  # fmt: skip


def _leaf_roles(node: GroupShape | RoleShape) -> Iterator[RoleShape]:
    """Yield the roles in a tree of role groups, in document order."""
    if isinstance(node, RoleShape):
        yield node
        return
    for child in node.children:
        yield from _leaf_roles(child)
