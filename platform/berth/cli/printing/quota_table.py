"""Tables of quotas, grouped by pool and department."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from berth.cli.exits import invalid_value_error
from berth.cli.printing.output import Column, Output
from berth.cli.printing.text import format_number, format_value
from berth.core.problems import suggest_visible_names

if TYPE_CHECKING:
    from berth.client import Client


@dataclass(frozen=True, slots=True)
class DepartmentHeading:
    """Heading above the quotas of projects whose department has no visible quota in the pool."""

    name: str
    pool: str


def quota_rows(client: "Client", pool: str | None, output: Output, owner: str | None = None) -> list[Any]:
    """Return the visible quotas by pool, with each department before its projects."""
    departments = {project.name: project.department for project in client.projects.list()}
    quotas = [quota for quota in client.quotas.list(pool=pool) if owner in (None, quota.owner.name)]
    if owner is not None and not quotas and owner not in departments:
        check_owner(owner, {*departments, *(department.name for department in client.departments.list())})
    headings = set()
    if owner is None and not output.is_data:
        headings = {
            DepartmentHeading(departments[quota.owner.name], quota.pool)
            for quota in quotas
            if quota.owner.kind == "project" and quota.owner.name in departments
        } - {
            DepartmentHeading(quota.owner.name, quota.pool)
            for quota in quotas
            if quota.owner.kind == "department"
        }
    return sorted([*quotas, *headings], key=lambda row: _quota_sort_key(row, departments))


def check_owner(owner: str, visible: Collection[str]) -> None:
    """Raise InvalidInput if no visible department or project has the name."""
    if owner not in visible:
        allowed = suggest_visible_names(owner, visible, "a department or project")
        raise invalid_value_error("NAME", "does not exist", owner, allowed)


def quota_columns(changed: Collection[str] = ()) -> list[Column]:
    """Return the quota columns. Amounts named in `changed`, such as "limit.cpu", are always shown."""
    return columns_with_headings("OWNER", [
        Column("QUOTA", lambda q: format_number(q.gpu, "unlimited"), right=True),
        Column("FAIR SHARE", lambda q: format_status_gpus(q, "share"), right=True, optional=True),
        Column("ALLOCATED", lambda q: format_status_gpus(q, "allocated"), right=True),
        Column("RESERVED", lambda q: format_status_gpus(q, "reserved"), right=True, optional=True),
        Column("REQUESTED", lambda q: format_status_gpus(q, "requested"), right=True, optional=True),
        Column("LIMIT", lambda q: format_number(q.limit.gpu, "unlimited"), right=True, optional=True),
        Column("WEIGHT", lambda q: _format_weight(q.weight), right=True, optional=True),
        Column("BORROWS", lambda q: "yes" if q.over_quota else "no", optional=True),
        Column("RANK", lambda q: "inherited" if q.rank is None else str(q.rank), right=True, wide=True),
        Column("CPU", lambda q: format_number(q.cpu, "unlimited"), right=True, wide="cpu" not in changed),
        Column(
            "CPU LIMIT", lambda q: format_number(q.limit.cpu, "unlimited"), right=True,
            wide="limit.cpu" not in changed,
        ),
        Column(
            "MEMORY MIB", lambda q: format_number(q.memory_mib, "unlimited"), right=True,
            wide="memory_mib" not in changed,
        ),
        Column(
            "MEMORY LIMIT", lambda q: format_number(q.limit.memory_mib, "unlimited"), right=True,
            wide="limit.memory_mib" not in changed,
        ),
        Column("VERSION", lambda q: str(q.version), right=True, wide=True),
    ])  # fmt: skip


def columns_with_headings(title: str, columns: list[Column]) -> list[Column]:
    """Return the owner, pool and quota columns. Heading rows show dashes in the quota columns."""
    return [
        Column(title, _format_owner),
        Column("POOL", lambda row: row.pool),
        *(replace(column, cell_text=_show_dash_in_headings(column.cell_text)) for column in columns),
    ]


def _format_owner(row: Any) -> str:
    if isinstance(row, DepartmentHeading):
        return row.name
    return row.owner.name if row.owner.kind == "department" else f"  {row.owner.name}"


def _show_dash_in_headings(format_quota: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda row: "-" if isinstance(row, DepartmentHeading) else format_quota(row)


def _format_weight(weight: Any) -> str:
    return format_value(weight if isinstance(weight, float) else weight.to_dict())


def format_status_gpus(quota: Any, name: str) -> str:
    """Format the GPUs of one amount in the last cycle, such as `allocated`, summed over all pools.

    Return "-" if the amount is unknown.
    """
    statuses = [status for status in (quota.status, *(quota.pools or {}).values()) if status is not None]
    return format_number(sum(getattr(status, name).gpu for status in statuses)) if statuses else "-"


def _quota_sort_key(row: Any, departments: dict[str, str]) -> tuple[str, str, bool, str]:
    if isinstance(row, DepartmentHeading):
        return (row.pool, row.name, False, row.name)
    name, is_project = row.owner.name, row.owner.kind == "project"
    return (row.pool, departments.get(name, "") if is_project else name, is_project, name)
