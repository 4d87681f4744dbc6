"""Quota page: all pools as a grid, or one pool as a tree."""

from django.http import HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_GET

from berth.core.values.amounts import MILLI
from berth.server.web.lists.tables import Column, group_by_top_row, list_rows, requested_csv
from berth.server.web.pages import Request, page, signed_in
from pools.models import NodePool
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Department
from scheduler.web.pools.capacity import pool_capacity
from scheduler.web.quotas import grid
from scheduler.web.quotas.pools_and_groups import find_pool_or_group, member_pools, pools_and_groups_to_show
from scheduler.web.quotas.queue_rows import QuotaLine, quota_lines, set_common_scale

MAX_EXPANDED_PROJECTS = 150  # with more projects, departments are collapsed and expand one at a time
UNPAGED = 10**9  # long trees are collapsed instead of paginated
QueueRow = tuple[QuotaLine, QuotaLine]  # department, and the queue itself


def _gpus_or_unlimited(milli: int | None) -> float | str:
    return "unlimited" if milli is None else milli / MILLI


def _limit(line: QuotaLine) -> float | str | None:
    return _gpus_or_unlimited(line.limit) if line.quota else None


def _weight(line: QuotaLine) -> float | None:
    return line.quota.weight_gpu if line.quota else None


COLUMNS: tuple[Column[QueueRow], ...] = (
    Column("name", "Department or project", lambda row: row[1].owner.name),
    Column("department", "Department", lambda row: row[0].owner.name, is_csv_only=True),
    Column(
        "quota",
        "Quota",
        lambda row: _gpus_or_unlimited(row[1].gpus) if row[1].numbers_visible else None,
        "GPUs",
        number=True,
    ),
    Column("limit", "Limit", lambda row: _limit(row[1]), "GPUs", number=True),
    Column("weight", "Weight", lambda row: _weight(row[1]), number=True, is_secondary=True),
    Column("rank", "Rank", lambda row: _effective_rank(row[1]), number=True, is_secondary=True),
    Column("share", "Fair share", lambda row: _to_gpus(row[1].share), "GPUs", number=True),
    Column("allocated", "Allocated", lambda row: row[1].allocated / MILLI, "GPUs", number=True),
    # The page shows reserved and allocated GPUs in the same cell.
    Column(
        "reserved", "Reserved", lambda row: row[1].reserved / MILLI, "GPUs", number=True, is_csv_only=True
    ),
    Column("pending", "Pending", lambda row: row[1].pending / MILLI, "GPUs", page_title="Allocation"),
)


def _to_gpus(milli: int | None) -> float | None:
    return None if milli is None else milli / MILLI


def _effective_rank(line: QuotaLine) -> int:
    own = line.quota.rank if line.quota else None
    return line.owner.rank if own is None else own


def _flatten_tree(tree: list[QuotaLine]) -> list[QueueRow]:
    return [(top, line) for top in tree for line in (top, *top.children)]


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    if not request.GET.get("pool"):
        return grid.index(request)
    places = pools_and_groups_to_show(request.actor)
    place = find_pool_or_group(request.actor, request.GET["pool"]) or (places[0] if places else None)
    pools = member_pools(place) if place else []
    tree = quota_lines(request.actor, pools, place)
    rows = _flatten_tree(tree)
    shows_rank = request.GET.get("format") == "csv" or any(_effective_rank(line) for _, line in rows)
    columns = [column for column in COLUMNS if shows_rank or column.key != "rank"]
    listing = list_rows(request, columns, rows, file_name=f"quotas-on-{place}", default="name", size=UNPAGED)
    if file := requested_csv(request, listing):
        return file
    for top, children in (branches_ := group_by_top_row(listing, tree)):
        top.children = children
    tree = [top for top, _ in branches_]
    few = sum(len(top.children) for top in tree) <= MAX_EXPANDED_PROJECTS
    expanded = request.GET.get("open", "")
    shown = [
        (top, department_permissions(request.actor, top), few or top.owner.name == expanded) for top in tree
    ]
    lines = [line for top, _, is_open in shown for line in (top, *(top.children if is_open else ()))]
    set_common_scale(lines)
    context = {
        "listing": listing,
        "pools": places,
        "pool": place,
        "is_pool": isinstance(place, NodePool),
        "members": pools,
        "tree": shown,
        "shows_rank": shows_rank,
        "width": 8 + shows_rank,
        "legend": {
            part.kind for line in lines if line.numbers_visible for part in line.bar.parts if part.width > 0
        },
        "has_torn_bars": any(line.bar.continues for line in lines if line.numbers_visible),
        "few": few,
        "total": pool_capacity(pools) if pools else None,
        "may_administer": may(request.actor, Action.ADMINISTER),
    }
    return page(request, "scheduler/quotas/tree.html", context, inner="scheduler/quotas/tree_rows.html")


def department_permissions(actor: Actor, top: QuotaLine) -> dict[str, bool]:
    """Return what the user may do with a department and its projects."""
    assert isinstance(top.owner, Department)
    edits = may(actor, Action.EDIT, top.owner)
    return {"quota": may(actor, Action.ADMINISTER), "edit": edits, "projects": edits}
