"""Here one sees a pool's fair shares: what is due, held, borrowed, and what was used lately."""

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from berth.web.bars import Bar, quota_bar
from berth.web.numbers import thousandths
from berth.web.pages import Request, page, signed_in
from pools.models import NodePool
from scheduler.share_table import Standing, share_table
from scheduler.usage import HALF_LIFE
from scheduler.web.capacity import total_gpus
from scheduler.web.quotas import MOST_UNFOLDED


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    pools = list(NodePool.objects.order_by("name"))
    pool = next((each for each in pools if each.name == request.GET.get("pool")), pools[0] if pools else None)
    told = share_table(request.acting, pool) if pool else []
    few = sum(len(children) for _, children in told) <= MOST_UNFOLDED
    unfolded = request.GET.get("open", "")
    tree = [(top, children, few or top.name == unfolded) for top, children in told]
    every = [each for top, children, is_open in tree for each in (top, *(children if is_open else ()))]
    ends = [max(each.quota or 0, each.share, each.requested, each.allocated) for each in every]
    scale = max(ends, default=0)
    context = {
        "pools": pools,
        "pool": pool,
        "tree": [
            (_drawn(top, scale), [_drawn(each, scale) for each in children] if is_open else [], len(children))
            for top, children, is_open in tree
        ],
        "few": few,
        "unfolded": unfolded,
        "total": total_gpus([pool]) if pool else None,
        "half_life": pool.half_life or (None if pool.window else HALF_LIFE) if pool else None,
    }
    return page(request, "scheduler/fair_share.html", context, inner="scheduler/fair_share_rows.html")


def _drawn(each: Standing, scale: int) -> tuple[Standing, Bar]:
    said = f"{each.name}: {thousandths(each.allocated)} GPUs held, fair share {thousandths(each.share)}"
    return each, quota_bar(
        allocated=each.allocated,
        quota=each.quota,
        share=each.share,
        wanted=max(0, each.requested - each.allocated),
        scale=scale,
        label=said,
    )
