"""Create and delete notification subscriptions."""

from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from berth.core.errors import Conflict, Forbidden, Invalid
from berth.core.problems import Problem, shown
from berth.core.spec.addresses import ALLOWED, Channel, channel_of, url_of
from projects.access import Action, may, require
from projects.acting import Acting
from projects.delivering.destination import refusal_without_lookup
from projects.models import Department, Project, Subscription
from projects.models.subscriptions import EVENTS, MAX_PENDING_MINUTES, WORKLOAD_EVENTS
from projects.services import audit
from projects.services.quotas import owner_columns

MAX_PER_SCOPE = 50
ALLOWED_HOOKS = "a public address, or one in BERTH_NOTIFY_NETWORKS"
SECRET_PATH_LENGTH = 16  # the last four characters of longer paths reveal nothing
SCOPE_EVENTS = (*WORKLOAD_EVENTS, "budget")

Place = User | Department | Project | None  # None: the whole platform


def subscribe(
    *, acting: Acting, place: Place, to: str, events: Iterable[str], pending_minutes: int = 60
) -> Subscription:
    """Subscribe to events of one's own workloads, or of an administered project, department or platform.

    Raises Invalid, Forbidden, or Conflict for duplicates and too many subscriptions.
    """
    _require(acting, place)
    channel, ordered_events = _checked(place, to, list(events), pending_minutes)
    scope = _columns(place)
    if Subscription.objects.filter(**scope).count() >= MAX_PER_SCOPE:
        raise Conflict(f"There are already {MAX_PER_SCOPE} subscriptions here. Delete one first.")
    subscription = Subscription(
        **scope,
        events=ordered_events,
        pending_minutes=pending_minutes,
        to=to,
        channel=channel,
        created_by=acting.name,
    )
    try:
        with transaction.atomic():
            subscription.save()
            _record(acting, "subscribe", subscription, {"events": ordered_events, "to": shown_address(to)})
    except IntegrityError:
        raise Conflict("This address is already subscribed here. Delete that subscription first.") from None
    return subscription


def unsubscribe(*, acting: Acting, subscription: Subscription) -> None:
    require_change(acting, subscription)
    with transaction.atomic():
        _record(acting, "unsubscribe", subscription, None)
        subscription.delete()


def require_change(acting: Acting, subscription: Subscription) -> None:
    _require(acting, subscription.user or subscription.project or subscription.department)


def may_change(acting: Acting, subscription: Subscription) -> bool:
    """Return True for one's own subscriptions and for those of scopes that one administers."""
    if subscription.user_id is not None:
        return acting.user is not None and subscription.user_id == acting.user.pk
    place = subscription.project or subscription.department
    return may(acting, Action.ADMINISTER) if place is None else may(acting, Action.GRANT, place)


def shown_address(to: str) -> str:
    """Return the address to display: for a webhook, which is secret, only the host and last characters."""
    if channel_of(to) == Channel.MAIL:
        return to
    scheme, _, rest = to.partition("://")
    place, _, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}/…{path[-4:] if len(path) > SECRET_PATH_LENGTH else ''}"


def _require(acting: Acting, place: Place) -> None:
    if place is None:
        require(acting, Action.ADMINISTER)
    elif isinstance(place, User):
        if acting.user is None or place.pk != acting.user.pk:
            raise Forbidden("You can only subscribe to your own workloads.")
    else:
        require(acting, Action.GRANT, place)


def _checked(place: Place, to: str, events: list[str], minutes: int) -> tuple[Channel, list[str]]:
    problems: list[Problem] = []
    channel = channel_of(to) if len(to) <= 2000 else None
    if channel is None:
        problems.append(Problem("to", "is not an address", shown(to), ALLOWED))
    elif channel != Channel.MAIL and (
        reason := refusal_without_lookup(url_of(to), settings.BERTH_NOTIFY_NETWORKS)
    ):
        problems.append(Problem("to", f"is not allowed: {reason}", shown_address(to), ALLOWED_HOOKS))
    allowed = EVENTS if place is None else WORKLOAD_EVENTS if isinstance(place, User) else SCOPE_EVENTS
    for word in events:
        if word not in allowed:
            problems.append(
                Problem("events", "is not an event of this scope", shown(word), ", ".join(allowed))
            )
    if not events:
        problems.append(Problem("events", "is empty", "", ", ".join(allowed)))
    if not 1 <= minutes <= MAX_PENDING_MINUTES:
        span = f"1 to {MAX_PENDING_MINUTES} minutes"
        problems.append(Problem("pending_minutes", "is out of range", shown(minutes), span))
    if problems or channel is None:
        raise Invalid(problems)
    return channel, [word for word in EVENTS if word in events]


def _columns(place: Place) -> dict[str, User | Department | Project | None]:
    if place is None:
        return {"user": None, "project": None, "department": None}
    if isinstance(place, User):
        return {"user": place, "project": None, "department": None}
    return {"user": None, "project": None, "department": None, **owner_columns(place)}


def _record(acting: Acting, action: str, row: Subscription, after: dict[str, object] | None) -> None:
    audit.write_down(acting, action, row, after=after, project=row.project, department=row.department)
