"""REST endpoints of notification subscriptions and their deliveries."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid, NotFound
from berth.core.problems import Problem, shown
from berth.core.spec.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, Order, page
from berth.server.api.requests import Body, ListQuery, no_query, parse_body, parse_query
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.lookups import department_in_body, project_in_body
from projects.models import Delivery, Subscription
from projects.services.notifications import subscriptions
from projects.services.notifications.subscriptions import Place

NewsWord = Literal[
    "started", "completed", "failed", "preempted", "cancelled", "unschedulable", "waiting", "idle",
    "budget", "pool",
]  # fmt: skip
OLDEST = Order("oldest", ("id",))


class NewSubscription(Body):
    """Of one's own work; or of a `project`, a `department` or the whole `platform` that one administers."""

    to: Text
    news: Annotated[list[NewsWord], Field(min_length=1, max_length=9)]
    waiting_minutes: int = 60
    project: Text | None = None
    department: Text | None = None
    platform: bool = False


class SubscriptionAnswer(Answer):
    id: int
    of: str = Field(description="What it tells of: one's own work, a project, a department, the platform.")
    project: str | None
    department: str | None
    user: str | None
    news: list[NewsWord]
    waiting_minutes: int
    to: str = Field(description="Of a hook only the host and the last letters: it is as good as a password.")
    channel: Literal["mail", "webhook", "chat"]
    made_by: str
    made_at: datetime


class DeliveryAnswer(Answer):
    id: int
    at: datetime
    kind: NewsWord
    to: str
    channel: Literal["mail", "webhook", "chat"]
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    due_at: datetime
    last_error: str
    ended_at: datetime | None


class Subscriptions(ApiView):
    @operation("Who is told what, as far as it is yours", query=ListQuery, page=SubscriptionAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(selectors.subscriptions(self.acting), query, OLDEST, presented))

    @operation("Be told", body=NewSubscription, answer=SubscriptionAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        body = parse_body(request, NewSubscription)
        made = subscriptions.subscribe(
            acting=self.acting, place=self._place(body), to=body.to, news=body.news,
            waiting_minutes=body.waiting_minutes,
        )  # fmt: skip
        return created(answer(made), f"/api/v1/subscriptions/{made.pk}")

    def _place(self, body: NewSubscription) -> Place:
        named = [name for name in ("project", "department", "platform") if getattr(body, name)]
        if len(named) > 1:
            raise Invalid([Problem(named[1], f"given together with {named[0]}", shown(named), "one of them")])
        if body.project is not None:
            return project_in_body(self.acting, body.project)
        if body.department is not None:
            return department_in_body(self.acting, body.department)
        if body.platform:
            return None
        user: Place = self.acting.user
        return user


class OneSubscription(ApiView):
    @operation("One of them", answer=SubscriptionAnswer)
    def get(self, request: Request, subscription_id: int) -> Response:
        no_query(request)
        return Response(answer(found(self.acting, subscription_id)))

    @operation("Be told no more", status=204)
    def delete(self, request: Request, subscription_id: int) -> Response:
        no_query(request)
        row = found(self.acting, subscription_id)
        subscriptions.unsubscribe(acting=self.acting, subscription=row)
        return no_content()


class DeliveriesOfSubscription(ApiView):
    @operation("What was told there, newest first", query=ListQuery, page=DeliveryAnswer)
    def get(self, request: Request, subscription_id: int) -> Response:
        query = parse_query(request, ListQuery)
        row = found(self.acting, subscription_id)
        return Response(page(Delivery.objects.filter(subscription=row), query, NEWEST, deliveries))


class DeliveriesOfWorkload(ApiView):
    @operation("Who was told what about one workload, newest first", query=ListQuery, page=DeliveryAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.acting, workload_id)
        rows = Delivery.objects.filter(workload_id=workload.pk)
        return Response(page(rows, query, NEWEST, deliveries))


def found(acting: Any, subscription_id: int) -> Subscription:
    row = selectors.subscriptions(acting).filter(pk=subscription_id).first()
    if row is None:
        raise NotFound("There is no subscription with that id.")
    return row


def presented(rows: Sequence[Subscription]) -> list[Any]:
    return [answer(row) for row in rows]


def answer(row: Subscription) -> SubscriptionAnswer:
    columns: Any = row  # holds words that were checked when they were written
    return SubscriptionAnswer(
        id=row.pk,
        of=row.place,
        project=row.project.name if row.project else None,
        department=row.department.name if row.department else None,
        user=row.user.get_username() if row.user else None,
        news=columns.news,
        waiting_minutes=row.waiting_minutes,
        to=subscriptions.shown_address(row.to),
        channel=columns.channel,
        made_by=row.made_by,
        made_at=row.made_at,
    )


def deliveries(rows: Sequence[Delivery]) -> list[Any]:
    columns = [name for name in DeliveryAnswer.model_fields if name != "to"]
    return [
        DeliveryAnswer(
            to=subscriptions.shown_address(row.to), **{name: getattr(row, name) for name in columns}
        )
        for row in rows
    ]
