"""REST endpoints for notification subscriptions and their deliveries."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem, format_value
from berth.core.spec.values.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, Order, map_rows, page
from berth.server.api.requests import Body, ListQuery, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.lookups import resolve_department, resolve_project
from projects.models import Delivery, Subscription
from projects.services.notifications import subscriptions
from projects.services.notifications.subscriptions import SubscriptionScope

EventName = Literal[
    "started", "completed", "failed", "preempted", "cancelled", "unschedulable", "pending", "idle",
    "budget", "schedule", "pool",
]  # fmt: skip
OLDEST = Order("oldest", ("id",))


class NewSubscription(Body):
    """Subscription to the user's own workloads or to a scope that the user administers."""

    to: Text
    events: Annotated[list[EventName], Field(min_length=1, max_length=11)]
    pending_minutes: int = Field(60, description="Pending time in minutes after which `pending` is sent.")
    project: Text | None = None
    department: Text | None = None
    platform_wide: bool = False


class SubscriptionChanges(Body):
    """Values to change. Omitted values and the scope stay the same."""

    to: Text | None = None
    events: Annotated[list[EventName], Field(min_length=1, max_length=11)] | None = None
    pending_minutes: int | None = None


class SubscriptionResponse(ResponseModel):
    id: int
    scope: str = Field(description="Subscribed scope, as text.")
    project: str | None
    department: str | None
    user: str | None
    events: list[EventName]
    pending_minutes: int
    to: str = Field(description="Address. A secret webhook shows only its host and last characters.")
    channel: Literal["mail", "webhook", "chat"]
    created_by: str
    created_at: datetime


class DeliveryResponse(ResponseModel):
    id: int
    at: datetime
    kind: EventName | Literal["test"]
    to: str
    channel: Literal["mail", "webhook", "chat"]
    state: Literal["pending", "delivered", "failed"]
    attempts: int
    next_attempt_at: datetime
    last_error: str
    ended_at: datetime | None


class Subscriptions(ApiView):
    @operation("List the subscriptions you may change", query=ListQuery, page=SubscriptionResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ListQuery)
        return Response(
            page(selectors.subscriptions(self.actor), query, OLDEST, map_rows(serialize_subscription))
        )

    @operation("Create a subscription", body=NewSubscription, response=SubscriptionResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        body = parse_body(request, NewSubscription)
        subscription = subscriptions.subscribe(
            actor=self.actor, scope=self._find_scope(body), to=body.to, events=body.events,
            pending_minutes=body.pending_minutes,
        )  # fmt: skip
        return created_response(
            serialize_subscription(subscription), f"/api/v1/subscriptions/{subscription.pk}"
        )

    def _find_scope(self, body: NewSubscription) -> SubscriptionScope:
        scopes = [name for name in ("project", "department", "platform_wide") if getattr(body, name)]
        if len(scopes) > 1:
            raise Invalid(
                [
                    Problem(
                        scopes[1], f"conflicts with {scopes[0]}", format_value(scopes), "only one of the two"
                    )
                ]
            )
        if body.project is not None:
            return resolve_project(self.actor, body.project)
        if body.department is not None:
            return resolve_department(self.actor, body.department)
        if body.platform_wide:
            return None
        user: SubscriptionScope = self.actor.user
        return user


class SubscriptionDetail(ApiView):
    @operation("Get a subscription", response=SubscriptionResponse)
    def get(self, request: Request, subscription_id: int) -> Response:
        return Response(serialize_subscription(find_subscription(self.actor, subscription_id)))

    @operation("Edit a subscription", body=SubscriptionChanges, response=SubscriptionResponse)
    def patch(self, request: Request, subscription_id: int) -> Response:
        row = find_subscription(self.actor, subscription_id)
        changes = parse_body(request, SubscriptionChanges)
        row = subscriptions.edit_subscription(
            actor=self.actor, subscription=row, to=changes.to, events=changes.events,
            pending_minutes=changes.pending_minutes,
        )  # fmt: skip
        return Response(serialize_subscription(row))

    @operation("Delete a subscription", status=204)
    def delete(self, request: Request, subscription_id: int) -> Response:
        row = find_subscription(self.actor, subscription_id)
        subscriptions.unsubscribe(actor=self.actor, subscription=row)
        return no_content()


class SubscriptionDeliveries(ApiView):
    @operation("List a subscription's deliveries, newest first", query=ListQuery, page=DeliveryResponse)
    def get(self, request: Request, subscription_id: int) -> Response:
        query = parse_query(request, ListQuery)
        row = find_subscription(self.actor, subscription_id)
        return Response(
            page(
                Delivery.objects.filter(subscription_id=row.pk),
                query,
                NEWEST,
                map_rows(serialize_delivery),
            )
        )


class SubscriptionTest(ApiView):
    @operation("Send a test message to a subscription's address", response=DeliveryResponse, status=201)
    @idempotent
    def post(self, request: Request, subscription_id: int) -> Response:
        row = find_subscription(self.actor, subscription_id)
        delivery = subscriptions.send_test(actor=self.actor, subscription=row, now=timezone.now())
        location = f"/api/v1/subscriptions/{row.pk}/deliveries"
        return created_response(serialize_delivery(delivery), location)


class SubscriptionDelivery(ApiView):
    @operation("Get a delivery of a subscription", response=DeliveryResponse)
    def get(self, request: Request, subscription_id: int, delivery_id: int) -> Response:
        row = find_subscription(self.actor, subscription_id)
        return Response(serialize_delivery(find_delivery(row, delivery_id)))


class ResendDelivery(ApiView):
    @operation("Send a failed delivery again", response=DeliveryResponse)
    @idempotent
    def post(self, request: Request, subscription_id: int, delivery_id: int) -> Response:
        row = find_subscription(self.actor, subscription_id)
        delivery = subscriptions.resend(
            actor=self.actor, subscription=row, delivery=find_delivery(row, delivery_id), now=timezone.now()
        )
        return Response(serialize_delivery(delivery))


class WorkloadDeliveries(ApiView):
    @operation(
        "List the notifications sent about a workload, newest first", query=ListQuery, page=DeliveryResponse
    )
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        rows = Delivery.objects.filter(workload_id=workload.pk)
        return Response(page(rows, query, NEWEST, map_rows(serialize_delivery)))


def find_subscription(actor: Any, subscription_id: int) -> Subscription:
    row = selectors.subscriptions(actor).filter(pk=subscription_id).first()
    if row is None:
        raise not_found_error(ObjectKind.SUBSCRIPTION, object_id=subscription_id)
    return row


def find_delivery(subscription: Subscription, delivery_id: int) -> Delivery:
    row = Delivery.objects.filter(subscription_id=subscription.pk, pk=delivery_id).first()
    if row is None:
        raise not_found_error(ObjectKind.DELIVERY, object_id=delivery_id, owner=subscription.pk)
    return row


def serialize_subscription(row: Subscription) -> SubscriptionResponse:
    return SubscriptionResponse.from_row(
        row,
        scope=row.scope_name,
        project=row.project.name if row.project else None,
        department=row.department.name if row.department else None,
        user=row.user.get_username() if row.user else None,
        to=subscriptions.display_address(row.to),
    )


def serialize_delivery(row: Delivery) -> DeliveryResponse:
    return DeliveryResponse.from_row(row, to=subscriptions.display_address(row.to))
