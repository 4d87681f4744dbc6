"""REST endpoints for a pool's costs and its capacity over time."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.requests import Query, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from pools.capacity_history import POINTS_MAX, capacity_over_time
from pools.costs import Spending, pool_costs

DAY, SPAN_MAX = 24 * 3600, 92 * 24 * 3600


class CapacityQuery(Query):
    span: Annotated[int, Field(ge=60, le=SPAN_MAX, description="Length of the period in seconds.")] = DAY
    points: Annotated[int, Field(ge=1, le=5000, description="Maximum number of points.")] = POINTS_MAX


class CapacityPointResponse(ResponseModel):
    at: datetime
    desired: int
    current: int
    pending: int
    draining: int


class CapacityResponse(ResponseModel):
    until: datetime
    points: list[CapacityPointResponse] = Field(
        description="Each point is valid until the next one, and the last until `until`."
    )


class PeriodCostResponse(ResponseModel):
    node_hours: float
    gpu_hours: float
    cost: float | None


class PoolCostResponse(ResponseModel):
    """Cost of a pool, calculated with the price that applied in each hour. Costs are null if no price is
    known.
    """

    price_per_gpu_hour: float | None
    per_hour: float | None = Field(description="Hourly cost of the current nodes.")
    last_24_hours: PeriodCostResponse
    last_30_days: PeriodCostResponse


class PoolCapacity(PoolView):
    @operation("Get the number of nodes over time", query=CapacityQuery, response=CapacityResponse)
    def get(self, request: Request, name: str) -> Response:
        query, pool, now = parse_query(request, CapacityQuery), self.get_pool(name), timezone.now()
        span = timedelta(seconds=query.span)
        points = [
            CapacityPointResponse.from_row(point, at=datetime.fromtimestamp(point.at, UTC))
            for point in capacity_over_time(pool, now=now, span=span, points_max=query.points)
        ]
        return Response(CapacityResponse(until=now, points=points))


class PoolCost(PoolView):
    @operation("Get the cost of a pool's nodes", response=PoolCostResponse)
    def get(self, request: Request, name: str) -> Response:
        costs = pool_costs(self.get_pool(name), timezone.now())
        return Response(
            PoolCostResponse(
                price_per_gpu_hour=_to_float(costs.price_per_gpu_hour), per_hour=_to_float(costs.per_hour),
                last_24_hours=_spending_response(costs.day), last_30_days=_spending_response(costs.month),
            )
        )  # fmt: skip


def _spending_response(spent: Spending) -> PeriodCostResponse:
    return PeriodCostResponse(
        node_hours=round(spent.node_hours, 3), gpu_hours=round(spent.gpu_hours, 3), cost=_to_float(spent.cost)
    )


def _to_float(value: Any) -> float | None:
    return None if value is None else float(value)
