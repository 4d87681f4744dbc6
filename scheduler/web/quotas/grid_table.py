"""Rows and columns of the quota grid. Only one batch of rows is rendered at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Q, Sum

from berth.core.values.amounts import MILLI
from berth.server.web.numbers import thousandths
from pools.models import NodePool, QuotaGroup
from pools.models.node import ALIVE, NodeState
from projects.access import Action, administered_departments, fully_visible_departments, may
from projects.actor import Actor
from projects.models.tenants import PoolOrGroup
from projects.selectors import departments, projects, quotas
from projects.services.quotas.drafts import NO_VERSION
from projects.web.quotas.cells import COLUMNS, FIELDS, NO_QUOTA, CellField, format_cell_value
from scheduler.models import QueueStatus

Values = Mapping[str, Any]  # quota values by database column


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """Values of a stored quota, and the version that a draft must name to change the quota."""

    version: str
    values: Values


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of the grid.

    In a department's row, `quota_sum` is the sum of the project quotas. `has_quota` is False if only default
    values apply.
    """

    text: str
    pool: PoolOrGroup
    name: str
    has_quota: bool
    adds_up: bool = False
    finite: int = 0
    unlimited: int = 0
    is_oversubscribed: bool = False
    allocated: int = 0  # milli-GPU allocated to the owner, set only for GPU quotas
    reserved: int = 0
    over_quota: bool = False

    @property
    def held(self) -> int:
        """Allocated and reserved milli-GPU."""
        return self.allocated + self.reserved

    @property
    def allocation_text(self) -> str:
        """Describe the allocated and reserved GPUs, such as "4 + 8 reserved". Return "" if there are none."""
        if self.reserved:
            return f"{thousandths(self.allocated)} + {thousandths(self.reserved)} reserved"
        return f"{thousandths(self.allocated)} allocated" if self.allocated else ""

    @property
    def quota_sum(self) -> str:
        return format_cell_value(FIELDS[self.name], None if self.unlimited else self.finite)


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the grid. `numbers_visible` is False if the department's own numbers are hidden from the
    user.
    """

    key: str
    name: str
    title: str
    top: str
    top_name: str
    editable: bool
    numbers_visible: bool
    quotas: Mapping[str, StoredQuota]  # quotas by the name of the pool or quota group
    number: int = 0
    cells: tuple[Cell, ...] = ()
    versions: str = ""

    @property
    def is_department(self) -> bool:
        return self.key == self.top

    @property
    def kind(self) -> str:
        return "department" if self.is_department else "project"


@dataclass(slots=True)
class Table:
    """Rows of the grid in order.

    `rows_with_cells` adds the cells to a range of rows. `tenants` is the number of rows before filtering.
    `default_fields` lists rare fields with only default values. `allocated` contains the allocated and
    reserved milli-GPU by row key and column name.
    """

    pools: Sequence[PoolOrGroup]
    fields: Sequence[str]
    rows: list[Row]
    sums: Mapping[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    tenants: int = 0
    default_fields: Sequence[str] = ()
    allocated: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def rows_with_cells(self, start: int, count: int | None = None) -> list[Row]:
        end = len(self.rows) if count is None else start + count
        return [self._add_cells(row, start + n) for n, row in enumerate(self.rows[start:end])]

    def _add_cells(self, row: Row, number: int) -> Row:
        quotas = [row.quotas.get(pool.name) for pool in self.pools]
        versions = " ".join(quota.version if quota else NO_VERSION for quota in quotas)
        return replace(row, number=number, cells=tuple(self._cells(row)), versions=versions)

    def _cells(self, row: Row) -> Iterator[Cell]:
        for pool in self.pools:
            quota = row.quotas.get(pool.name)
            for name in self.fields:
                field_ = FIELDS[name]
                value = quota.values[field_.column] if quota else field_.default
                text = format_cell_value(field_, value) if quota else NO_QUOTA
                amounts = self.allocated.get((row.key, pool.name), (0, 0)) if name == "gpu" else (0, 0)
                over = value is not None and name == "gpu" and sum(amounts) > value
                if not (row.is_department and field_.adds_up and row.numbers_visible):
                    yield Cell(
                        text, pool, name, quota is not None,
                        allocated=amounts[0], reserved=amounts[1], over_quota=over,
                    )  # fmt: skip
                    continue
                finite, unlimited = self.sums.get((row.key, pool.name, name), (0, 0))
                beyond = value is not None and (unlimited > 0 or finite > value)
                yield Cell(
                    text, pool, name, quota is not None, True, finite, unlimited, beyond, *amounts, over
                )


def build_table(
    actor: Actor, pools: Sequence[PoolOrGroup], fields: Sequence[str], *, search: str = "", within: str = "",
    sort: str = "name", hide_default: bool = False,
) -> Table:  # fmt: skip
    """Return the grid, filtered by name and department, and sorted within each department.

    `hide_default` leaves out rare fields with only default values.
    """
    every = _read_rows(actor, pools)
    default_fields = _default_fields(every)
    if hide_default:
        fields = [name for name in fields if name not in default_fields]
    tenants = sum(1 + len(inner) for _, inner in every)
    sums, allocated = _project_quota_sums(every, fields), allocated_gpus(pools)
    result = Table(pools, fields, [], sums, tenants, default_fields, allocated)
    for top, children in every:
        if within and top.name != within:
            continue
        fits = not search or search in top.name
        chosen = children if fits else [row for row in children if search in row.name]
        if fits or chosen:
            result.rows += [top, *_sort_rows(chosen, pools, sort)]
    return result


def cell_value(row: StoredQuota | None, name: str) -> str:
    field_ = FIELDS[name]
    return format_cell_value(field_, row.values[field_.column]) if row else NO_QUOTA


def gpu_capacities(places: Sequence[PoolOrGroup]) -> dict[str, tuple[int, int]]:
    """Return two values in milli-GPU for each pool and quota group: the capacity at maximum size and the
    capacity of the ready nodes.
    """
    pools = NodePool.objects.filter(
        Q(pk__in=[place.pk for place in places if isinstance(place, NodePool)])
        | Q(quota_group__in=[place.pk for place in places if isinstance(place, QuotaGroup)])
    )
    present = Sum("nodes__gpus", filter=Q(nodes__state__in=ALIVE))
    ready = Sum("nodes__gpus", filter=Q(nodes__state=NodeState.READY))
    capacity: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for pool in pools.select_related("quota_group").annotate(present=present, ready=ready):
        largest, now = MILLI * max(pool.max_gpus, pool.present or 0), MILLI * (pool.ready or 0)
        names = [pool.name, *([pool.quota_group.name] if pool.quota_group else [])]
        for name in names:
            capacity[name] = capacity[name][0] + largest, capacity[name][1] + now
    return capacity


def allocated_gpus(places: Sequence[PoolOrGroup]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the allocated and reserved milli-GPU after the last cycle, by row key and pool or group."""
    names = {place.name for place in places}
    result: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    rows = QueueStatus.objects.filter(
        Q(pool__name__in=names) | Q(pool__quota_group__name__in=names)
    ).order_by()
    for department, project, allocated, reserved, *of_places in rows.values_list(
        "department_id", "project_id", "allocated", "reserved", "pool__name", "pool__quota_group__name"
    ):
        for name in names.intersection(of_places):
            key = f"project-{project}" if project else f"department-{department}", name
            result[key] = result[key][0] + allocated[0], result[key][1] + reserved[0]
    return result


def pool_or_group_condition(places: Iterable[PoolOrGroup]) -> Q:
    """Return a query filter for the quotas of the pools and quota groups."""
    every = list(places)
    pools = [place for place in every if isinstance(place, NodePool)]
    groups = [place for place in every if isinstance(place, QuotaGroup)]
    return Q(pool__in=pools) | Q(group__in=groups)


def visible_quotas(
    actor: Actor, places: Iterable[PoolOrGroup], keys: Iterable[str] | None = None
) -> dict[str, dict[str, StoredQuota]]:
    """Return the visible quotas by owner and pool or group, for all owners or only for `keys`."""
    every = list(places)
    names: dict[tuple[int | None, int | None], str] = {
        (None, place.pk) if isinstance(place, QuotaGroup) else (place.pk, None): place.name for place in every
    }
    result: dict[str, dict[str, StoredQuota]] = defaultdict(dict)
    rows = quotas(actor).filter(pool_or_group_condition(every)).select_related(None).order_by()
    if keys is not None:
        tops, inner = parse_owner_keys(keys)
        rows = rows.filter(Q(department__in=tops) | Q(project__in=inner))
    for pk, version, pool, group, top, project, *values in rows.values_list(
        "pk", "version", "pool_id", "group_id", "department_id", "project_id", *COLUMNS
    ):
        key = f"project-{project}" if project else f"department-{top}"
        result[key][names[pool, group]] = StoredQuota(
            f"{pk}.{version}", dict(zip(COLUMNS, values, strict=True))
        )
    return result


def _read_rows(actor: Actor, pools: Sequence[PoolOrGroup]) -> list[tuple[Row, list[Row]]]:
    owned, everything = visible_quotas(actor, pools), may(actor, Action.ADMINISTER)
    whole = set(fully_visible_departments(actor).values_list("pk", flat=True))
    mine = set(administered_departments(actor).values_list("pk", flat=True))
    tops: dict[int, tuple[Row, list[Row]]] = {}
    for pk, name, title in departments(actor).values_list("pk", "name", "title"):
        key = f"department-{pk}"
        top = Row(key, name, title, key, name, everything and pk in whole, pk in whole, owned.get(key, {}))
        tops[pk] = (top, [])
    rows = projects(actor).select_related(None).values_list("pk", "name", "title", "department_id")
    for pk, name, title, top_id in rows:
        top, children = tops[top_id]
        key = f"project-{pk}"
        may_set = everything or top_id in mine
        children.append(Row(key, name, title, top.key, top.name, may_set, True, owned.get(key, {})))
    return list(tops.values())


def _default_fields(every: Iterable[tuple[Row, list[Row]]]) -> list[str]:
    """Return the rare fields that have their default value in all quotas of `every`."""
    quotas = [quota.values for top, inner in every for row in (top, *inner) for quota in row.quotas.values()]
    return [
        name
        for name, field_ in FIELDS.items()
        if field_.is_rare and all(values[field_.column] == field_.default for values in quotas)
    ]


def _project_quota_sums(
    every: Iterable[tuple[Row, list[Row]]], fields: Iterable[str]
) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return the sum of project quotas and the number of unlimited quotas, by (department, pool, field)."""
    adding = [(name, FIELDS[name].column) for name in fields if FIELDS[name].adds_up]
    result: dict[tuple[str, str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for top, children in every:
        for child in children:
            for pool, quota in child.quotas.items():
                for name, column in adding:
                    finite, unlimited = result[top.key, pool, name]
                    value = quota.values[column]
                    more = (finite, unlimited + 1) if value is None else (finite + value, unlimited)
                    result[top.key, pool, name] = more
    return result


def _sort_rows(rows: list[Row], pools: Sequence[PoolOrGroup], sort: str) -> list[Row]:
    """Sort rows by name, or by a value in one pool, for example "gpu.train", or "-gpu.train" for the reverse
    order.
    """
    down, word = sort.startswith("-"), sort.removeprefix("-")
    name, _, where = word.partition(".")
    pool = next((pool for pool in pools if pool.name == where), None)
    if pool is None or name not in FIELDS:
        return sorted(rows, key=lambda row: row.name, reverse=down)
    field_: CellField = FIELDS[name]
    high = float("-inf") if field_.kind == "rank" else float("inf")

    def sort_key(row: Row) -> tuple[float, str]:
        stored = row.quotas.get(pool.name)
        value = stored.values[field_.column] if stored else field_.default
        return (high if value is None else float(value), row.name)

    return sorted(rows, key=sort_key, reverse=down)


def parse_owner_keys(keys: Iterable[str]) -> tuple[set[int], set[int]]:
    """Parse row keys into department IDs and project IDs. Invalid keys are ignored."""
    result: dict[str, set[int]] = {"department": set(), "project": set()}
    for key in keys:
        kind, _, pk = key.partition("-")
        if kind in result and pk.isdecimal() and len(pk) < 19:
            result[kind].add(int(pk))
    return result["department"], result["project"]
