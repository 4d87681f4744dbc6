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

EventWord = Literal[
    "started", "completed", "failed", "preempted", "cancelled", "unschedulable", "waiting", "idle",
    "budget", "pool",
]  # fmt: skip
OLDEST = Order("oldest", ("id",))


class NewSubscription(Body):
    """A subscription to one's own workloads, or to a scope that one administers."""

    to: Text
    events: Annotated[list[EventWord], Field(min_length=1, max_length=10)]
    pending_minutes: int = Field(60, description="How long a workload is pending before `waiting` is sent.")
    project: Text | None = None
    department: Text | None = None
    platform_wide: bool = False


class SubscriptionAnswer(Answer):
    id: int
    scope: str = Field(description="The user's workloads, a project, a department or the platform.")
    project: str | None
    department: str | None
    user: str | None
    events: list[EventWord]
    pending_minutes: int
    to: str = Field(description="Of a webhook, which is a secret, only the host and the last characters.")
    channel: Literal["mail", "webhook", "chat"]
    created_by: str
    created_at: datetime


class DeliveryAnswer(Answer):
    id: int
    at: datetime
    kind: EventWord
    to: str
    channel: Literal["mail", "webhook", "chat"]
    state: Literal["waiting", "delivered", "given_up"]
    attempts: int
    next_attempt_at: datetime
    last_error: str
    ended_at: datetime | None


class Subscriptions(ApiView):
    @operation("List the subscriptions you may change", query=ListQuery, page=SubscriptionAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(selectors.subscriptions(self.acting), query, OLDEST, presented))

    @operation("Create a subscription", body=NewSubscription, answer=SubscriptionAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        body = parse_body(request, NewSubscription)
        subscription = subscriptions.subscribe(
            acting=self.acting, place=self._place(body), to=body.to, events=body.events,
            pending_minutes=body.pending_minutes,
        )  # fmt: skip
        return created(answer(subscription), f"/api/v1/subscriptions/{subscription.pk}")

    def _place(self, body: NewSubscription) -> Place:
        scopes = [name for name in ("project", "department", "platform_wide") if getattr(body, name)]
        if len(scopes) > 1:
            raise Invalid([Problem(scopes[1], f"conflicts with {scopes[0]}", shown(scopes), "one of them")])
        if body.project is not None:
            return project_in_body(self.acting, body.project)
        if body.department is not None:
            return department_in_body(self.acting, body.department)
        if body.platform_wide:
            return None
        user: Place = self.acting.user
        return user


class OneSubscription(ApiView):
    @operation("Get a subscription", answer=SubscriptionAnswer)
    def get(self, request: Request, subscription_id: int) -> Response:
        no_query(request)
        return Response(answer(find_subscription(self.acting, subscription_id)))

    @operation("Delete a subscription", status=204)
    def delete(self, request: Request, subscription_id: int) -> Response:
        no_query(request)
        row = find_subscription(self.acting, subscription_id)
        subscriptions.unsubscribe(acting=self.acting, subscription=row)
        return no_content()


class DeliveriesOfSubscription(ApiView):
    @operation("List the deliveries of a subscription, newest first", query=ListQuery, page=DeliveryAnswer)
    def get(self, request: Request, subscription_id: int) -> Response:
        query = parse_query(request, ListQuery)
        row = find_subscription(self.acting, subscription_id)
        return Response(page(Delivery.objects.filter(subscription=row), query, NEWEST, deliveries))


class DeliveriesOfWorkload(ApiView):
    @operation(
        "List the notifications sent about a workload, newest first", query=ListQuery, page=DeliveryAnswer
    )
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.acting, workload_id)
        rows = Delivery.objects.filter(workload_id=workload.pk)
        return Response(page(rows, query, NEWEST, deliveries))


def find_subscription(acting: Any, subscription_id: int) -> Subscription:
    row = selectors.subscriptions(acting).filter(pk=subscription_id).first()
    if row is None:
        raise NotFound("No subscription with this id.")
    return row


def presented(rows: Sequence[Subscription]) -> list[Any]:
    return [answer(row) for row in rows]


def answer(row: Subscription) -> SubscriptionAnswer:
    columns: Any = row  # validated when it was stored
    return SubscriptionAnswer(
        id=row.pk,
        scope=row.place,
        project=row.project.name if row.project else None,
        department=row.department.name if row.department else None,
        user=row.user.get_username() if row.user else None,
        events=columns.events,
        pending_minutes=row.pending_minutes,
        to=subscriptions.shown_address(row.to),
        channel=columns.channel,
        created_by=row.created_by,
        created_at=row.created_at,
    )


def deliveries(rows: Sequence[Delivery]) -> list[Any]:
    same = ("id", "at", "kind", "channel", "state", "last_error", "ended_at")
    return [
        DeliveryAnswer(
            to=subscriptions.shown_address(row.to), attempts=row.attempts,
            next_attempt_at=row.next_attempt_at, **{name: getattr(row, name) for name in same},
        )
        for row in rows
    ]  # fmt: skip
