"""Pages of quotas: all pools in a grid, or one pool as a tree."""

from django.http import HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_GET

from berth.core.amounts import MILLI
from berth.server.web.lists.tables import Column, branches, exported, list_rows
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may, visible_pools
from projects.acting import Acting
from projects.models import Department
from scheduler.web.pools.capacity import total_gpus
from scheduler.web.quotas import grid
from scheduler.web.quotas.queue_rows import Line, lines

MOST_UNFOLDED = 150  # projects; with more, departments are folded and opened one at a time
MOST_ROWS = 10**9  # long trees are folded, not paginated
Placed = tuple[Line, Line]  # department and queue


def _amount(milli: int | None) -> float | str:
    return "unlimited" if milli is None else milli / MILLI


def _limit(line: Line) -> float | str | None:
    return _amount(line.limit) if line.quota else None


def _weight(line: Line) -> float | None:
    return line.quota.weight_gpu if line.quota else None


COLUMNS: tuple[Column[Placed], ...] = (
    Column("name", "Owner", lambda row: row[1].owner.name),
    Column("department", "Department", lambda row: row[0].owner.name, in_file=True),
    Column(
        "quota",
        "Quota",
        lambda row: _amount(row[1].gpus) if row[1].numbers_visible else None,
        "GPUs",
        number=True,
    ),
    Column("limit", "Limit", lambda row: _limit(row[1]), "GPUs", number=True),
    Column("weight", "Weight", lambda row: _weight(row[1]), number=True),
    Column("rank", "Rank", lambda row: _rank(row[1]), number=True),
    Column("share", "Fair share", lambda row: _milli(row[1].share), "GPUs", number=True),
    Column("allocated", "Allocated", lambda row: row[1].allocated / MILLI, "GPUs", number=True),
    Column("pending", "Pending", lambda row: row[1].waiting / MILLI, "GPUs"),
)


def _milli(milli: int | None) -> float | None:
    return None if milli is None else milli / MILLI


def _rank(line: Line) -> int:
    own = line.quota.rank if line.quota else None
    return line.owner.rank if own is None else own


def _flat(tree: list[Line]) -> list[Placed]:
    return [(top, line) for top in tree for line in (top, *top.children)]


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    if not request.GET.get("pool"):
        return grid.index(request)
    pools = list(visible_pools(request.acting).order_by("name"))
    pool = next((each for each in pools if each.name == request.GET.get("pool")), pools[0] if pools else None)
    tree = lines(request.acting, [pool] if pool else [])
    listing = list_rows(
        request, COLUMNS, _flat(tree), file_name=f"quotas-on-{pool}", default="name", size=MOST_ROWS
    )
    if file := exported(request, listing):
        return file
    for top, children in (branches_ := branches(listing, tree)):
        top.children = children
    tree = [top for top, _ in branches_]
    few = sum(len(top.children) for top in tree) <= MOST_UNFOLDED
    unfolded = request.GET.get("open", "")
    shown = [(top, rights(request.acting, top), few or top.owner.name == unfolded) for top in tree]
    context = {
        "listing": listing,
        "pools": pools,
        "pool": pool,
        "tree": shown,
        "may_edit": any(may_do["projects"] for _, may_do, _ in shown),
        "few": few,
        "total": total_gpus([pool]) if pool else None,
        "may_administer": may(request.acting, Action.ADMINISTER),
    }
    return page(request, "scheduler/quotas/tree.html", context, inner="scheduler/quotas/tree_rows.html")


def rights(acting: Acting, top: Line) -> dict[str, bool]:
    """Return the user's permissions in a department and its projects."""
    assert isinstance(top.owner, Department)
    edits = may(acting, Action.EDIT, top.owner)
    return {"quota": may(acting, Action.ADMINISTER), "edit": edits, "projects": edits}
