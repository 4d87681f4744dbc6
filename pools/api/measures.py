"""REST endpoints of a pool's capacity over time and cost."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.requests import Query, no_query, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from pools.capacity_history import POINTS_MAX, capacity_over_time
from pools.costs import Spent, costs_of

DAY, MONTHS = 24 * 3600, 92 * 24 * 3600


class CapacityQuery(Query):
    span: Annotated[int, Field(ge=60, le=MONTHS, description="Length of the period in seconds.")] = DAY
    points: Annotated[int, Field(ge=1, le=5000, description="Maximum number of points.")] = POINTS_MAX


class PointAnswer(Answer):
    at: datetime
    desired: int
    current: int
    pending: int
    draining: int


class CapacityAnswer(Answer):
    until: datetime
    points: list[PointAnswer] = Field(
        description="Each point holds until the next one, the last until `until`."
    )


class SpentAnswer(Answer):
    node_hours: float
    gpu_hours: float
    cost: float | None


class CostAnswer(Answer):
    """Cost at the price valid in each hour; null if no price is known."""

    price_per_gpu_hour: float | None
    per_hour: float | None = Field(description="Cost of the current nodes.")
    last_24_hours: SpentAnswer
    last_30_days: SpentAnswer


class PoolCapacity(PoolView):
    @operation("Get the number of nodes over time", query=CapacityQuery, answer=CapacityAnswer)
    def get(self, request: Request, name: str) -> Response:
        query, pool, now = parse_query(request, CapacityQuery), self.get_pool(name), timezone.now()
        span = timedelta(seconds=query.span)
        points = [
            PointAnswer(
                at=datetime.fromtimestamp(point.at, UTC), desired=point.desired, current=point.current,
                pending=point.pending, draining=point.draining,
            )
            for point in capacity_over_time(pool, now=now, span=span, most=query.points)
        ]  # fmt: skip
        return Response(CapacityAnswer(until=now, points=points))


class PoolCost(PoolView):
    @operation("Get the cost of a pool's nodes", answer=CostAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        costs = costs_of(self.get_pool(name), timezone.now())
        return Response(
            CostAnswer(
                price_per_gpu_hour=_number(costs.price_per_gpu_hour), per_hour=_number(costs.per_hour),
                last_24_hours=_spent(costs.day), last_30_days=_spent(costs.month),
            )
        )  # fmt: skip


def _spent(spent: Spent) -> SpentAnswer:
    return SpentAnswer(
        node_hours=round(spent.node_hours, 3), gpu_hours=round(spent.gpu_hours, 3), cost=_number(spent.cost)
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
