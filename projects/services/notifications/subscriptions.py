"""Create, edit, test and delete notification subscriptions, and retry their failed deliveries."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django_q.tasks import async_task

from berth.core.errors import Conflict, Forbidden, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec.values.addresses import ALLOWED, Channel, detect_channel, webhook_url
from projects.access import Action, may, require, visible_projects
from projects.actor import Actor
from projects.delivering.destination import find_rejection_without_lookup
from projects.models import Delivery, Subscription
from projects.models.notifications import EVENTS, MAX_PENDING_MINUTES, WORKLOAD_EVENTS
from projects.models.tenants import Tenant, owner_columns
from projects.services import audit
from projects.services.notifications.notify import TASK, build_delivery, create_deliveries

MAX_PER_SCOPE = 50
ALLOWED_HOOKS = "a public address"
# BERTH_NOTIFY_NETWORKS is a server setting.
ALLOWED_HOOKS_FOR_ADMINS = f"{ALLOWED_HOOKS}, or one in BERTH_NOTIFY_NETWORKS"
SECRET_PATH_LENGTH = 16  # the end of a webhook path is shown only if the path is longer
TEST = "test"
TEST_INTERVAL = timedelta(minutes=1)
SCOPE_EVENTS = (*WORKLOAD_EVENTS, "budget", "schedule")

SubscriptionScope = User | Tenant | None  # None stands for the entire platform


def subscribe(
    *, actor: Actor, scope: SubscriptionScope, to: str, events: Iterable[str], pending_minutes: int = 60
) -> Subscription:
    """Subscribe to events of the user's own workloads, or of a scope that the user administers.

    Raises Invalid, Forbidden, or Conflict for a duplicate or too many subscriptions.
    """
    _require_permission(actor, scope)
    channel, ordered_events = _validate_subscription(actor, scope, to, list(events), pending_minutes)
    scope_columns = _scope_columns(scope)
    if Subscription.objects.filter(**scope_columns).count() >= MAX_PER_SCOPE:
        raise Conflict(f"This scope already has {MAX_PER_SCOPE} subscriptions. Delete one first.")
    subscription = Subscription(
        **scope_columns,
        events=ordered_events,
        pending_minutes=pending_minutes,
        to=to,
        channel=channel,
        created_by=actor.name,
    )
    try:
        with transaction.atomic():
            subscription.save()
            _audit_change(
                actor, "subscribe", subscription, {"events": ordered_events, "to": display_address(to)}
            )
    except IntegrityError:
        raise _duplicate_error() from None
    return subscription


def edit_subscription(
    *,
    actor: Actor,
    subscription: Subscription,
    to: str | None = None,
    events: Iterable[str] | None = None,
    pending_minutes: int | None = None,
) -> Subscription:
    """Change the address, events or pending threshold of a subscription, and return it.

    Deliveries in progress keep the old address. Raises Invalid, or Conflict if the address is already
    subscribed in the scope.
    """
    require_change_permission(actor, subscription)
    with transaction.atomic():
        row = Subscription.objects.select_for_update(of=("self",)).get(pk=subscription.pk)
        before, address = _shown_values(row), row.to
        row.to = row.to if to is None else to
        row.pending_minutes = row.pending_minutes if pending_minutes is None else pending_minutes
        scope = row.user or row.project or row.department
        channel, row.events = _validate_subscription(
            actor, scope, row.to, list(row.events if events is None else events), row.pending_minutes
        )
        row.channel = channel
        after = _shown_values(row)
        changed = [key for key in after if before[key] != after[key] or (key == "to" and row.to != address)]
        if not changed:
            return row
        try:
            with transaction.atomic():
                row.save(update_fields=["to", "channel", "events", "pending_minutes"])
        except IntegrityError:
            raise _duplicate_error() from None
        audit.write_entry(
            actor, "edit", row, project=row.project, department=row.department,
            before={key: before[key] for key in changed}, after={key: after[key] for key in changed},
        )  # fmt: skip
    return row


def unsubscribe(*, actor: Actor, subscription: Subscription) -> None:
    require_change_permission(actor, subscription)
    with transaction.atomic():
        _audit_change(actor, "unsubscribe", subscription, None)
        subscription.delete()


def send_test(*, actor: Actor, subscription: Subscription, now: datetime) -> Delivery:
    """Queue a test message to the subscription's address.

    Return the delivery. Raises Conflict if the last test message is less than a minute old.
    """
    require_change_permission(actor, subscription)
    with transaction.atomic():
        Subscription.objects.select_for_update(no_key=True).get(pk=subscription.pk)
        recent = Delivery.objects.filter(
            subscription_id=subscription.pk, kind=TEST, at__gt=now - TEST_INTERVAL
        )
        if recent.exists():
            raise Conflict("A test message was sent within the last minute. Try again later.")
        content = {
            "event": TEST,
            "scope": subscription.scope_name,
            "message": f"{actor.name} requested this message. Notifications reach this address.",
            "at": now.isoformat(timespec="seconds"),
        }
        recipient = (subscription.to, Channel(subscription.channel), subscription)
        delivery = build_delivery(TEST, recipient, content, now)
        create_deliveries([delivery])
        delivery.refresh_from_db()
        _audit_change(actor, "test", subscription, {"to": display_address(subscription.to)})
    return delivery


def resend(*, actor: Actor, subscription: Subscription, delivery: Delivery, now: datetime) -> Delivery:
    """Queue a failed delivery again, with the same content and delivery ID.

    Return the delivery. Raises Conflict if the delivery has not failed, and Forbidden if the subscriber can
    no longer see its project.
    """
    require_change_permission(actor, subscription)
    if subscription.user_id is not None and not _may_see_project(actor, delivery):
        raise Forbidden(
            "This notification is about a project that you can no longer see. Ask a project admin for a role."
        )
    with transaction.atomic():
        failed = Delivery.objects.filter(
            pk=delivery.pk, subscription_id=subscription.pk, state=Delivery.State.FAILED
        )
        if not failed.update(
            state=Delivery.State.PENDING, ended_at=None, attempts=0, next_attempt_at=now, last_error=""
        ):
            raise Conflict(_resend_rejection(delivery))
        async_task(TASK, delivery.pk)
        _audit_change(
            actor, "resend", subscription, {"event": delivery.kind, "to": display_address(delivery.to)}
        )
    delivery.refresh_from_db()
    return delivery


def require_change_permission(actor: Actor, subscription: Subscription) -> None:
    _require_permission(actor, subscription.user or subscription.project or subscription.department)


def may_change(actor: Actor, subscription: Subscription) -> bool:
    """Return whether the subscription belongs to the user or to a scope that the user administers."""
    if subscription.user_id is not None:
        return actor.user is not None and subscription.user_id == actor.user.pk
    scope = subscription.project or subscription.department
    return may(actor, Action.ADMINISTER) if scope is None else may(actor, Action.GRANT, scope)


def allowed_events(scope: SubscriptionScope) -> tuple[str, ...]:
    if scope is None:
        return EVENTS
    return WORKLOAD_EVENTS if isinstance(scope, User) else SCOPE_EVENTS


def display_address(to: str) -> str:
    """Return the address for display. Most of a webhook URL's path is omitted, because the path is secret."""
    if detect_channel(to) == Channel.MAIL:
        return to
    scheme, _, rest = to.partition("://")
    place, _, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}/…{path[-4:] if len(path) > SECRET_PATH_LENGTH else ''}"


def _may_see_project(actor: Actor, delivery: Delivery) -> bool:
    project = delivery.project_id
    return project is None or visible_projects(actor).filter(pk=project).exists()


def _resend_rejection(delivery: Delivery) -> str:
    state = Delivery.objects.filter(pk=delivery.pk).values_list("state", flat=True).first()
    reasons: dict[str | None, str] = {
        Delivery.State.DELIVERED: "It was already delivered.",
        Delivery.State.PENDING: "It is already in progress, and Berth retries it until it arrives or fails.",
    }
    reason = reasons.get(state, "It has been deleted.")
    return f"This delivery cannot be sent again: {reason} Only failed deliveries can be sent again."


def _require_permission(actor: Actor, scope: SubscriptionScope) -> None:
    if scope is None:
        require(actor, Action.ADMINISTER)
    elif isinstance(scope, User):
        if actor.user is None or scope.pk != actor.user.pk:
            raise Forbidden("You cannot manage another user's subscriptions.")
    else:
        require(actor, Action.GRANT, scope)


def check_subscription(
    *, actor: Actor, scope: SubscriptionScope, to: str, events: Iterable[str], pending_minutes: int
) -> None:
    """Raise Invalid if `subscribe` would reject the values."""
    _validate_subscription(actor, scope, to, list(events), pending_minutes)


def _validate_subscription(
    actor: Actor, scope: SubscriptionScope, to: str, events: list[str], minutes: int
) -> tuple[Channel, list[str]]:
    problems: list[Problem] = []
    channel = detect_channel(to) if len(to) <= 2000 else None
    if channel is None:
        problems.append(Problem("to", _address_problem(to), format_value(to), ALLOWED))
    elif channel != Channel.MAIL and (
        reason := find_rejection_without_lookup(webhook_url(to), settings.BERTH_NOTIFY_NETWORKS)
    ):
        allowed_hooks = ALLOWED_HOOKS_FOR_ADMINS if may(actor, Action.ADMINISTER) else ALLOWED_HOOKS
        problems.append(Problem("to", f"is not allowed: {reason}", display_address(to), allowed_hooks))
    allowed = allowed_events(scope)
    for event in events:
        if event not in allowed:
            problems.append(
                Problem("events", "is not available for this scope", format_value(event), ", ".join(allowed))
            )
    if not events:
        problems.append(Problem("events", "is empty", "", ", ".join(allowed)))
    if not 1 <= minutes <= MAX_PENDING_MINUTES:
        span = f"1 to {MAX_PENDING_MINUTES} minutes"
        problems.append(Problem("pending_minutes", "is out of range", format_value(minutes), span))
    if problems or channel is None:
        raise Invalid(problems)
    return channel, [event for event in EVENTS if event in events]


def _address_problem(to: str) -> str:
    """Return why the text is not a valid address, such as "begins with ftp://, which is not supported"."""
    scheme, separator, rest = to.strip().partition("://")
    if separator and scheme.removeprefix("slack:").lower() not in ("http", "https"):
        return f"begins with {format_value(scheme[:20])[1:-1]}://, which is not supported"
    if separator:
        return "has no host name" if not rest.strip("/") else "is not a valid URL"
    if "@" in to:
        return "is not a valid email address"
    return "is neither an email address nor a URL"


def _duplicate_error() -> Conflict:
    return Conflict("This address is already subscribed in this scope. Delete that subscription first.")


def _shown_values(row: Subscription) -> dict[str, object]:
    """Return the values for the audit log. Most of a webhook's path is hidden."""
    return {"to": display_address(row.to), "events": row.events, "pending_minutes": row.pending_minutes}


def _scope_columns(scope: SubscriptionScope) -> dict[str, User | Tenant | None]:
    if scope is None:
        return {"user": None, "project": None, "department": None}
    if isinstance(scope, User):
        return {"user": scope, "project": None, "department": None}
    return {"user": None, "project": None, "department": None, **owner_columns(scope)}


def _audit_change(
    actor: Actor, action: audit.AuditAction, row: Subscription, after: dict[str, object] | None
) -> None:
    audit.write_entry(actor, action, row, after=after, project=row.project, department=row.department)
