"""Store submitted workloads with their roles, events and audit entries in one query."""

from collections.abc import Collection, Iterable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db.models import Model
from pydantic_core import to_json

from berth.core.spec import GroupShape, RoleShape
from berth.db import prepared
from projects.models import Audit, Event, RoleNode, Workload


def _names(model: type[Model], *excluded: str) -> list[str]:
    columns = (str(field.column) for field in model._meta.concrete_fields)
    return [column for column in columns if column not in excluded]


def _quote_columns(columns: Iterable[str], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{name}"' for name in columns)


WORKLOAD_COLUMNS = _names(Workload)
ROLE_COLUMNS = _names(RoleNode, "id", "parent_id")
EVENT_COLUMNS = _names(Event, "id", "at")
AUDIT_COLUMNS = _names(Audit, "id", "at")
AMOUNT_COLUMNS = ("gpu_milli", "gpu_devices", "gpu_memory_mib", "cpu_milli", "memory_mib")

# A row is skipped if its name belongs to a live workload or an active array of the project.
# `parent_id` holds the parent's position until the roles have IDs.
# A join to find the parents would compare all roles with each other.
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
), node AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('projects_rolenode', 'id')) AS new_id, role.*
    FROM json_populate_recordset(NULL::projects_rolenode, %s) role
    JOIN stored ON stored.id = role.workload_id
), nodes AS (
    INSERT INTO projects_rolenode (id, parent_id, {_quote_columns(ROLE_COLUMNS)})
    SELECT new_id, nth_value(new_id, (parent_id + 1)::integer) OVER tree, {_quote_columns(ROLE_COLUMNS)}
    FROM node
    WINDOW tree AS (
        PARTITION BY workload_id ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
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
)
SELECT id FROM stored
"""  # noqa: S608  (the names are those of the models)


def store(
    workloads: Sequence[tuple[Workload, GroupShape]], events: Sequence[Event], entries: Sequence[Audit]
) -> Collection[UUID]:
    """Insert the workloads, and return the IDs of the inserted ones.

    If a live workload or an active array of its project has its name, a workload is skipped together with its
    event and audit entry. Call this in the transaction that has locked the projects.
    """
    # Sort the rows, so that two requests with the same names do not deadlock.
    rows = sorted((row for row, _ in workloads), key=lambda row: (row.project_id, row.name))
    parameters = [
        to_json(_values(rows, WORKLOAD_COLUMNS)).decode(),
        to_json([node for row, tree in workloads for node in _nodes(row.pk, tree)]).decode(),
        to_json(_values(events, EVENT_COLUMNS)).decode(),
        to_json(_values(entries, AUDIT_COLUMNS)).decode(),
    ]
    return {row[0] for row in prepared.fetch_all(INSERT, parameters)}


def replace_roles(workload_id: UUID, tree: GroupShape) -> None:
    """Replace the rows of a workload's role tree."""
    RoleNode.objects.filter(workload=workload_id).delete()
    stored: list[RoleNode] = []  # role nodes by position
    for values in _nodes(workload_id, tree):
        parent = values.pop("parent_id")
        row = RoleNode(**values, parent=None if parent is None else stored[parent])
        row.save(force_insert=True)
        stored.append(row)


def _values(rows: Iterable[Model], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of each row by column. Columns are named after attributes."""
    values = attrgetter(*columns)
    return [dict(zip(columns, values(row), strict=True)) for row in rows]


def _nodes(workload_id: UUID, tree: GroupShape) -> list[dict[str, Any]]:
    """Return the role tree as rows, numbered depth first."""
    rows: list[dict[str, Any]] = []
    positions = count()

    def add(node: GroupShape | RoleShape, parent: int | None) -> None:
        position = next(positions)
        row: dict[str, Any] = {
            "workload_id": workload_id, "parent_id": parent, "position": position, "name": node.name,
            "topology_required": (node.topology and node.topology.required) or "",
            "topology_preferred": (node.topology and node.topology.preferred) or "",
        }  # fmt: skip
        rows.append(row)
        if isinstance(node, RoleShape):
            row |= {
                "min": node.min, "max": node.max, "gpu_milli": node.gpu, "gpu_devices": node.devices,
                "gpu_memory_mib": node.gpu_memory_mib, "cpu_milli": node.cpu, "memory_mib": node.memory_mib,
            }  # fmt: skip
            return
        row |= {"need": node.need, **dict.fromkeys(AMOUNT_COLUMNS, 0)}
        for child in node.children:
            add(child, position)

    add(tree, None)
    return rows
