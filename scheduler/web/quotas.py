"""Here one sees quotas: all pools in one grid, or one pool's tree with what each was given and holds."""

from django.http import HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_GET

from berth.web.pages import Request, page, signed_in
from pools.models import NodePool
from projects.access import Action, may
from projects.acting import Acting
from projects.models import Department
from scheduler.web import quota_grid
from scheduler.web.capacity import total_gpus
from scheduler.web.lines import Line, lines

MOST_UNFOLDED = 150  # projects: beyond it departments are folded, and one at a time is opened


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    if not request.GET.get("pool"):
        return quota_grid.index(request)
    pools = list(NodePool.objects.order_by("name"))
    pool = next((each for each in pools if each.name == request.GET.get("pool")), pools[0] if pools else None)
    tree = lines(request.acting, [pool] if pool else [])
    few = sum(len(top.children) for top in tree) <= MOST_UNFOLDED
    unfolded = request.GET.get("open", "")
    shown = [(top, rights(request.acting, top), few or top.owner.name == unfolded) for top in tree]
    context = {
        "pools": pools,
        "pool": pool,
        "tree": shown,
        "may_edit": any(may_do["projects"] for _, may_do, _ in shown),
        "few": few,
        "total": total_gpus([pool]) if pool else None,
        "may_administer": may(request.acting, Action.ADMINISTER),
    }
    return page(request, "scheduler/quotas.html", context, inner="scheduler/quota_tree.html")


def rights(acting: Acting, top: Line) -> dict[str, bool]:
    """What this person may change of a department and of its projects."""
    assert isinstance(top.owner, Department)
    edits = may(acting, Action.EDIT, top.owner)
    return {"quota": may(acting, Action.ADMINISTER), "edit": edits, "projects": edits}
