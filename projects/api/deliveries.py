"""REST endpoint of a workload's notification deliveries."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.answers import Answer
from berth.server.api.door import Door
from berth.server.api.pages import NEWEST, page
from berth.server.api.queries import ListQuery, query_of
from berth.server.api.schema import described
from projects import selectors
from projects.models import Delivery
from projects.services.notifications.subscriptions import shown_address


class DeliveryAnswer(Answer):
    id: int
    at: datetime
    kind: Literal[
        "started", "completed", "failed", "preempted", "cancelled", "unschedulable", "waiting", "idle",
        "budget", "pool",
    ]  # fmt: skip
    to: str
    channel: Literal["mail", "webhook", "chat"]
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    due_at: datetime
    last_error: str
    ended_at: datetime | None


class DeliveriesOfWorkload(Door):
    @described("Who was told what about one workload, newest first", query=ListQuery, page=DeliveryAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = query_of(request, ListQuery)
        workload = selectors.find_workload(self.acting, workload_id)
        rows = Delivery.objects.filter(workload_id=workload.pk)
        return Response(page(rows, query, NEWEST, presented))


def presented(rows: Sequence[Delivery]) -> list[Any]:
    return [
        DeliveryAnswer(**{name: getattr(row, name) for name in DeliveryAnswer.model_fields} | _address(row))
        for row in rows
    ]


def _address(row: Delivery) -> dict[str, str]:
    return {"to": shown_address(row.to)}
