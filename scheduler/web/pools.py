"""Here one sees node pools: how full each is, which device of which node is held by whom, why it grew."""

from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET

from berth.web.pages import Request, page, signed_in
from berth.web.paging import slice_of
from pools import selectors
from pools.models import NodePool
from projects.access import Action, may
from scheduler.web.capacity import Capacity, total_gpus
from scheduler.web.devices import NodeMap, legend, node_maps

STEPS_OF_NODE = {
    "requested": ("terminate",),
    "booting": ("terminate",),
    "ready": ("cordon", "drain", "terminate"),
    "cordoned": ("uncordon", "drain", "terminate"),
    "draining": ("uncordon", "terminate"),
}


@dataclass(frozen=True, slots=True)
class Row:
    pool: NodePool
    capacity: Capacity


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    context = {
        "rows": [Row(pool, total_gpus([pool])) for pool in selectors.pools()],
        "may_change": may(request.acting, Action.ADMINISTER),
    }
    return page(request, "scheduler/pools.html", context, inner="scheduler/pool_rows.html")


@signed_in
@require_GET
def detail(request: Request, name: str) -> HttpResponse:
    pool = get_object_or_404(selectors.pools(), name=name)
    maps = node_maps(request.acting, [pool])
    context = {
        "pool": pool,
        "capacity": total_gpus([pool]),
        "maps": [(each, STEPS_OF_NODE.get(each.node.state, ())) for each in maps],
        "legend": legend(maps),
        "holders": held_somewhere(maps),
        "may_change": may(request.acting, Action.EDIT, pool),
        "slice": slice_of(
            selectors.scaling_events(pool),
            {"at": "pk"},
            sort="-at",
            default="-at",
            cursor=request.GET.get("cursor", ""),
            size=20,
        ),
    }
    return page(request, "scheduler/pool.html", context, inner="scheduler/pool_body.html")


def held_somewhere(maps: list[NodeMap]) -> bool:
    return any(each.held or each.others for each in maps)
