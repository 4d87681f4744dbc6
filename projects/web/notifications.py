"""Pages for notification subscriptions and deliveries."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, cast

from django.db.models import Q
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import Conflict, Forbidden
from berth.core.spec.values.addresses import CHAT_PREFIX, Channel
from berth.server.web.faults import add_remaining_errors, form_errors
from berth.server.web.lists.tables import Column, list_query, requested_csv, table_state
from berth.server.web.numbers import duration
from berth.server.web.pages import Request, confirm_page, form_page, page, signed_in, success_response
from projects.access import Action, administered_departments, administered_projects, may
from projects.actor import Actor
from projects.models import Delivery, Subscription
from projects.selectors import departments, find_owner, projects, subscriptions
from projects.services.notifications import subscriptions as service
from projects.web.notification_forms import (
    CHANNELS,
    DEFAULT_MINUTES,
    MINE,
    PLATFORM,
    TITLES,
    EditSubscriptionForm,
    SubscriptionForm,
)

MAX_DELIVERIES = 30
TEST_TITLE = "Test message"

# Table row: subscription, channel, masked address, short event titles and latest delivery.
SubscriptionRow = tuple[Subscription, str, str, list[str], Delivery | None]
DeliveryRow = tuple[Delivery, str, str, str]  # table row: delivery, channel, masked address, title
SUBSCRIPTIONS: tuple[Column[SubscriptionRow], ...] = (
    Column("scope", "Scope", lambda row: row[0].scope_name),
    Column("events", "Events", lambda row: ", ".join(row[3])),
    Column(
        "long",
        "Pending threshold",
        lambda row: row[0].pending_minutes,
        "minutes",
        "pending_minutes",
        is_csv_only=True,
    ),
    Column("channel", "Channel", lambda row: row[1], order="channel", is_secondary=True),
    Column("to", "To", lambda row: row[2]),
    Column("latest", "Last delivery", lambda row: row[4].state if row[4] else None),
    Column("made", "Since", lambda row: row[0].created_at, order="pk"),
    Column("created-by", "Created by", lambda row: row[0].created_by, is_csv_only=True),
)
DELIVERIES: tuple[Column[DeliveryRow], ...] = (
    Column("at", "Time", lambda row: row[0].at, order="pk"),
    Column("event", "Event", lambda row: row[3], order="kind"),
    Column("scope", "Scope", lambda row: _delivery_subject(row[0]), is_csv_only=True),
    Column("state", "State", lambda row: row[0].state, order="state"),
    Column("channel", "Channel", lambda row: row[1], order="channel", is_secondary=True),
    Column("to", "To", lambda row: row[2]),
    Column("error", "Last error", lambda row: row[0].last_error, is_csv_only=True),
    Column("attempts", "Attempts", lambda row: row[0].attempts, order="attempts", number=True),
)


def _subscription_rows(rows: list[Subscription]) -> list[SubscriptionRow]:
    latest = {
        delivery.subscription_id: delivery
        for delivery in Delivery.objects.filter(subscription_id__in=[row.pk for row in rows])
        .order_by("subscription_id", "-pk")
        .distinct("subscription_id")
    }
    return [
        (
            row,
            *_channel_and_address(row),
            [_short_title(row, word) for word in row.events],
            latest.get(row.pk),
        )
        for row in rows
    ]


def _short_title(row: Subscription, event: str) -> str:
    """Return the event's title without the "Workload" prefix that nearly all titles share."""
    if event == "pending":
        return f"Pending for {duration(60 * row.pending_minutes)}"
    title = TITLES[event].removeprefix("Workload ")
    return title[:1].upper() + title[1:]


def _delivery_rows(rows: list[Delivery]) -> list[DeliveryRow]:
    titles = TITLES | {service.TEST: TEST_TITLE}
    return [(row, *_channel_and_address(row), titles.get(row.kind, row.kind)) for row in rows]


def _channel_and_address(row: Subscription | Delivery) -> tuple[str, str]:
    return CHANNELS[Channel(row.channel)], service.display_address(row.to).removeprefix(CHAT_PREFIX)


def _matching_channels(word: str) -> list[str]:
    return [channel for channel, title in CHANNELS.items() if word.lower() in (channel, title.lower())]


def _delivery_subject(row: Delivery) -> str:
    if row.workload_id:
        return f"{row.content.get('project')}/{row.content.get('workload')}"
    if "array" in row.content:
        return f"{row.content.get('project')}/{row.content['array']}"
    subject = row.content.get("owner") or row.content.get("pool") or row.content.get("scope")
    return str(subject or "")


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    mine = subscriptions(request.actor)
    rows, log = mine, Delivery.objects.filter(subscription_id__in=mine.order_by().values("pk"))
    for word in table_state(request.GET, "")["search"].split():
        owners = Q(project__name__icontains=word) | Q(department__name__icontains=word)
        people = Q(user__username__icontains=word) | Q(created_by__icontains=word)
        rows = rows.filter(owners | people | Q(channel__in=_matching_channels(word)))
    for word in table_state(request.GET, "log")["search"].split():
        name_matches = (
            Q(**{f"content__{key}__icontains": word}) for key in ("project", "workload", "owner", "pool")
        )
        log = log.filter(Q(kind=word.lower()) | Q(state=word.lower()) | reduce(or_, name_matches))
    listing = list_query(
        request, SUBSCRIPTIONS, rows, _subscription_rows, file_name="notifications", default="made"
    )
    deliveries = list_query(
        request,
        DELIVERIES,
        log,
        _delivery_rows,
        name="log",
        file_name="deliveries",
        default="-at",
        size=MAX_DELIVERIES,
    )
    if file := requested_csv(request, listing, deliveries):
        return file
    context = {
        "listing": listing,
        "subscriptions": listing.rows,
        "log": deliveries,
        "deliveries": deliveries.rows,
        "has_failed": any(row.state == Delivery.State.FAILED for row, *_ in deliveries.rows),
    }
    return page(
        request, "projects/notifications/list.html", context, inner="projects/notifications/rows.html"
    )


@signed_in
@require_http_methods(["GET", "POST"])
def add(request: Request) -> HttpResponse:
    email = getattr(request.user, "email", "")
    is_subscribed = subscriptions(request.actor).filter(user=request.user.pk, to=email).exists()
    initial = {
        "scope": MINE, "events": ["preempted", "failed", "pending"], "pending_minutes": DEFAULT_MINUTES,
        "channel": Channel.MAIL,
        "to": "" if is_subscribed else email,
    }  # fmt: skip
    form = SubscriptionForm(request.POST or None, initial=initial, auto_id="subscription_%s")
    form.set_scopes(_scope_choices(request.actor))
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        with form_errors(form):
            subscription = service.subscribe(
                actor=request.actor, scope=_find_scope(request, values["scope"]), to=values["to"],
                events=values["events"], pending_minutes=values["pending_minutes"] or DEFAULT_MINUTES,
            )  # fmt: skip
            return success_response(
                request, f"Subscription to {subscription.scope_name} created.", to=reverse("notifications")
            )
    elif request.method == "POST" and "scope" in form.cleaned_data:
        add_remaining_errors(form, lambda: _check_values(request, form.cleaned_data))
    return form_page(
        request,
        form,
        title="Create subscription",
        text="Failed deliveries are retried for several hours.",
        label="Create subscription",
        back=reverse("notifications"),
        crumbs=[("Notifications", reverse("notifications"))],
    )


def _check_values(request: Request, values: Mapping[str, Any]) -> None:
    service.check_subscription(
        actor=request.actor, scope=_find_scope(request, values["scope"]), to=values.get("to", ""),
        events=values.get("events", ()), pending_minutes=values.get("pending_minutes") or DEFAULT_MINUTES,
    )  # fmt: skip


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, subscription_id: int) -> HttpResponse:
    row = _find_subscription(request, subscription_id)
    initial = {
        "events": row.events, "pending_minutes": row.pending_minutes, "channel": row.channel,
        "to": row.to if row.channel == Channel.MAIL else "",
    }  # fmt: skip
    form = EditSubscriptionForm(request.POST or None, row=row, initial=initial, auto_id="subscription_%s")
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        with form_errors(form):
            service.edit_subscription(
                actor=request.actor, subscription=row, to=values["to"] or None, events=values["events"],
                pending_minutes=values["pending_minutes"],
            )  # fmt: skip
            return success_response(
                request, f"Subscription to {row.scope_name} changed.", to=reverse("notifications")
            )
    return form_page(
        request, form, title=f"Edit subscription to {row.scope_name}", label="Save subscription",
        text="Deliveries in progress still go to the previous address.", back=reverse("notifications"),
        crumbs=[("Notifications", reverse("notifications"))],
    )  # fmt: skip


@signed_in
@require_http_methods(["GET", "POST"])
def send_test(request: Request, subscription_id: int) -> HttpResponse:
    row = _find_subscription(request, subscription_id)
    to = service.display_address(row.to)
    error = ""
    if request.method == "POST":
        try:
            service.send_test(actor=request.actor, subscription=row, now=timezone.now())
        except Conflict as conflict:
            error = conflict.detail
        else:
            message = f"Test message to {to} queued. Its state is listed under Deliveries."
            return success_response(request, message, to=reverse("notifications"))
    return confirm_page(
        request,
        title=f"Send a test message to {to}?",
        warning=error or "The message says who requested it. Its delivery is listed with its result.",
        label="Send test message",
        back=reverse("notifications"),
    )


@signed_in
@require_http_methods(["GET", "POST"])
def resend(request: Request, delivery_id: int) -> HttpResponse:
    delivery = Delivery.objects.filter(pk=delivery_id, subscription_id__isnull=False).first()
    if delivery is None:
        raise Http404
    row = _find_subscription(request, cast("int", delivery.subscription_id))
    to = service.display_address(delivery.to)
    error = ""
    if request.method == "POST":
        try:
            service.resend(actor=request.actor, subscription=row, delivery=delivery, now=timezone.now())
        except (Conflict, Forbidden) as rejection:
            error = rejection.detail
        else:
            message = f"Delivery to {to} queued again. Its state is listed under Deliveries."
            return success_response(request, message, to=reverse("notifications"))
    return confirm_page(
        request,
        title=f"Send this notification to {to} again?",
        warning=error
        or "The content and the delivery ID stay the same. If the first attempt fails, "
        "Berth retries for several hours.",
        label="Send again",
        back=reverse("notifications"),
    )


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, subscription_id: int) -> HttpResponse:
    row = _find_subscription(request, subscription_id)
    if request.method == "POST":
        service.unsubscribe(actor=request.actor, subscription=row)
        return success_response(request, "Subscription deleted.", to=reverse("notifications"))
    return confirm_page(
        request,
        title=f"Delete the subscription for {service.display_address(row.to)}?",
        warning=f"The address no longer receives events for {row.scope_name}. "
        "Deliveries in progress still arrive.",
        label="Delete subscription",
        back=reverse("notifications"),
        danger=True,
    )


def _find_subscription(request: Request, subscription_id: int) -> Subscription:
    row: Subscription | None = subscriptions(request.actor).filter(pk=subscription_id).first()
    if row is None:
        raise Http404
    return row


def _scope_choices(actor: Actor) -> list[tuple[str, str]]:
    choices = [(MINE, "My workloads")]
    choices += [
        (f"projects/{scope.name}", f"Project {scope.name}")
        for scope in projects(actor).filter(pk__in=administered_projects(actor))
    ]
    choices += [
        (f"departments/{scope.name}", f"Department {scope.name}")
        for scope in departments(actor).filter(pk__in=administered_departments(actor))
    ]
    if may(actor, Action.ADMINISTER):
        choices.append((PLATFORM, "The entire platform"))
    return choices


def _find_scope(request: Request, choice: str) -> Any:
    if choice == MINE:
        return request.actor.user
    if choice == PLATFORM:
        return None
    kind, _, name = choice.partition("/")
    return find_owner(request.actor, kind, name)
