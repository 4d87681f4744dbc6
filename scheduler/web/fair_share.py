"""Page that shows each queue's fair share in a pool and how it is computed."""

from collections.abc import Callable, Mapping, Sequence

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from berth.core.values.amounts import MILLI
from berth.server.web.charts.bars import Bar, bar_scale, quota_bar
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.tables import Column, group_by_top_row, list_rows, requested_csv
from berth.server.web.numbers import thousandths
from berth.server.web.pages import Request, page, signed_in
from pools.models import NodePool
from projects.access import visible_pools
from projects.known_names import unknown_pool_problem
from projects.selectors import find_owner
from scheduler.reports.fair_share.table import QueueShare, share_table
from scheduler.reports.fair_share.trace import UNITS, share_trace
from scheduler.reports.queues.pending_gpus import pending_gpus_by_pool
from scheduler.reports.usage.decayed import HALF_LIFE
from scheduler.web.pools.capacity import capacity_by_pool, pool_capacity
from scheduler.web.quotas.tree import MAX_EXPANDED_PROJECTS, UNPAGED

QueueRow = tuple[QueueShare, QueueShare]  # department, and the queue itself


def _to_gpus(milli: int | None) -> float | str:
    return "unlimited" if milli is None else milli / MILLI


COLUMNS: tuple[Column[QueueRow], ...] = (
    Column("name", "Department or project", lambda row: row[1].name),
    Column("department", "Department", lambda row: row[0].name, is_csv_only=True),
    Column("rank", "Rank", lambda row: row[1].rank if row[1].numbers_visible else None, number=True),
    Column(
        "weight",
        "Weight",
        lambda row: row[1].weight if row[1].numbers_visible else None,
        number=True,
        is_secondary=True,
    ),
    Column(
        "quota",
        "Quota",
        lambda row: _to_gpus(row[1].quota) if row[1].numbers_visible else None,
        "GPUs",
        number=True,
    ),
    Column(
        "limit",
        "Limit",
        lambda row: _to_gpus(row[1].limit) if row[1].numbers_visible else None,
        "GPUs",
        number=True,
        is_secondary=True,
    ),
    Column("share", "Fair share", lambda row: _gpus_if_visible(row[1], row[1].share), "GPUs", number=True),
    Column(
        "allocated", "Allocated", lambda row: _gpus_if_visible(row[1], row[1].allocated), "GPUs", number=True
    ),
    Column(
        "reserved", "Reserved", lambda row: _gpus_if_visible(row[1], row[1].reserved), "GPUs", number=True
    ),
    Column(
        "borrowed",
        "Over quota",
        lambda row: _gpus_if_visible(row[1], row[1].over_quota),
        "GPUs",
        number=True,
        is_secondary=True,
    ),
    Column("pending", "Pending", lambda row: _gpus_if_visible(row[1], row[1].pending), "GPUs", number=True),
    Column("used", "Decayed usage", lambda row: row[1].used if row[1].numbers_visible else None, number=True),
    Column(
        "lacks",
        "Below fair share",
        lambda row: _gpus_if_visible(row[1], row[1].below_share),
        "GPUs",
        page_title="Allocation",
    ),
)


def columns_with_default_value(queues: Sequence[QueueShare]) -> dict[str, str]:
    """Return the columns in which all queues have the default value, with that value as text."""
    defaults: Mapping[str, tuple[str, Callable[[QueueShare], bool]]] = {
        "rank": ("rank 0", lambda queue: queue.rank == 0),
        "weight": ("weight 1", lambda queue: queue.weight == 1),
        "limit": ("no limit", lambda queue: queue.limit is None),
        "used": ("no decayed usage", lambda queue: queue.used == 0),
    }
    return {key: words for key, (words, has) in defaults.items() if queues and all(map(has, queues))}


def _gpus_if_visible(queue: QueueShare, milli: int) -> float | None:
    """Convert milli-GPU to GPUs, or return None if the department's own numbers are hidden from the user."""
    return milli / MILLI if queue.numbers_visible else None


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    pools = list(visible_pools(request.actor).order_by("name"))
    name = request.GET.get("pool", "").replace("\x00", "")[:100]
    if pools and not name:  # refreshes and downloads keep this pool even if another becomes the busiest
        parameters = request.GET.copy()
        parameters["pool"] = _busiest_pool(pools).name
        return redirect(f"{request.path}?{parameters.urlencode()}")
    pool = next((pool for pool in pools if pool.name == name), next(iter(pools), None))
    departments = _sort_by_name(share_table(request.actor, pool)) if pool else []
    pairs = [(top, queue) for top, children in departments for queue in (top, *children)]
    default = columns_with_default_value([queue for _, queue in pairs])
    columns = [
        column for column in COLUMNS if column.key not in default or request.GET.get("format") == "csv"
    ]
    listing = list_rows(request, columns, pairs, file_name=f"fair-shares-in-{pool}", default="", size=UNPAGED)
    if file := requested_csv(request, listing):
        return file
    shown = group_by_top_row(listing, [top for top, _ in departments])
    few = sum(len(children) for _, children in shown) <= MAX_EXPANDED_PROJECTS
    expanded = request.GET.get("open", "")
    tree = [(top, children, few or top.name == expanded) for top, children in shown]
    every = [queue for top, children, is_open in tree for queue in (top, *(children if is_open else ()))]
    ends = [max(queue.quota or 0, queue.share, queue.held) for queue in every]
    scale = bar_scale(max(ends, default=0)) or max((queue.requested for queue in every), default=0)
    bars = [
        (
            _pair_with_bar(top, scale),
            [_pair_with_bar(queue, scale) for queue in children] if is_open else [],
            len(children),
        )
        for top, children, is_open in tree
    ]
    context = {
        "listing": listing,
        "pools": pools,
        "pool": pool,
        "unknown": describe_unknown(unknown_pool_problem(request.actor, name)),
        "tree": bars,
        "bar_kinds": {part.kind for top, inner, _ in bars for _, bar in (top, *inner) for part in bar.parts},
        "has_torn_bars": any(bar.continues for top, inner, _ in bars for _, bar in (top, *inner)),
        "few": few,
        "default": default,
        "width": sum(not column.is_csv_only for column in columns),
        "expanded": expanded,
        "total": pool_capacity([pool]) if pool else None,
        "half_life": pool.half_life or (None if pool.window else HALF_LIFE) if pool else None,
    }
    return page(request, "scheduler/fair_share/list.html", context, inner="scheduler/fair_share/rows.html")


def _busiest_pool(pools: Sequence[NodePool]) -> NodePool:
    """Return the pool with the most allocated, reserved and pending GPUs."""
    if len(pools) == 1:
        return pools[0]
    capacity = capacity_by_pool(pools)
    pending = pending_gpus_by_pool(pools)
    return max(
        pools,
        key=lambda pool: (
            capacity[pool.pk].allocated + capacity[pool.pk].reserved + pending[pool.name],
            capacity[pool.pk].existing_gpus,
        ),
    )


def _sort_by_name(
    tree: Sequence[tuple[QueueShare, list[QueueShare]]],
) -> list[tuple[QueueShare, list[QueueShare]]]:
    return sorted(
        ((top, sorted(children, key=lambda queue: queue.name)) for top, children in tree),
        key=lambda pair: pair[0].name,
    )


def _pair_with_bar(queue: QueueShare, scale: int) -> tuple[QueueShare, Bar]:
    reserved = f", {thousandths(queue.reserved)} reserved" if queue.reserved else ""
    allocated = f"{thousandths(queue.allocated)} GPUs allocated{reserved}"
    label = f"{queue.name}: {allocated}, fair share {thousandths(queue.share)}"
    return queue, quota_bar(
        allocated=queue.allocated,
        reserved=queue.reserved,
        quota=queue.quota,
        share=queue.share,
        requested=queue.pending,
        scale=scale,
        label=label,
    )


@signed_in
@require_GET
def explanation(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where = find_owner(request.actor, kind, name), get_object_or_404(NodePool, name=pool)
    traces = share_trace(actor=request.actor, owner=owner, pool=where)
    context = {
        "owner": owner,
        "pool": where,
        "chapters": [(trace, UNITS[trace.resource]) for trace in traces],
        "others": [(trace, UNITS[trace.resource]) for trace in traces if trace.resource != "gpu"],
        "back": f"{reverse('quotas')}?pool={where.name}",
    }
    return page(
        request, "scheduler/fair_share/trace.html", context, inner="scheduler/fair_share/trace_body.html"
    )
