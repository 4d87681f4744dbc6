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
from projects.delivering.destination import refused_at_sight
from projects.models import Department, Project, Subscription
from projects.models.subscriptions import MINUTES_MOST, NEWS, OF_WORK
from projects.services import audit
from projects.services.quotas import place_of

MOST_EACH = 50
CALLED = "a public address, or one of a network that the setting BERTH_NOTIFY_NETWORKS names"
LONG = 16  # a path of which four letters give nothing away
TOLD_OF_PLACES = (*OF_WORK, "budget")

Place = User | Department | Project | None  # None: the whole platform


def subscribe(
    *, acting: Acting, place: Place, to: str, news: Iterable[str], waiting_minutes: int = 60
) -> Subscription:
    """News of one's own work, or of a project, department or platform that one administers.

    Raises Invalid, Conflict (there already, or too many), Forbidden.
    """
    _require(acting, place)
    channel, wanted = _checked(place, to, list(news), waiting_minutes)
    where = _columns(place)
    if Subscription.objects.filter(**where).count() >= MOST_EACH:
        raise Conflict(f"There are {MOST_EACH} already: remove one first.")
    made = Subscription(
        **where, news=wanted, waiting_minutes=waiting_minutes, to=to, channel=channel, made_by=acting.name
    )
    try:
        with transaction.atomic():
            made.save()
            _written(acting, "subscribe", made, {"news": wanted, "to": shown_address(to)})
    except IntegrityError:
        raise Conflict("This address is told of it already: remove that first.") from None
    return made


def unsubscribe(*, acting: Acting, subscription: Subscription) -> None:
    require_change(acting, subscription)
    with transaction.atomic():
        _written(acting, "unsubscribe", subscription, None)
        subscription.delete()


def require_change(acting: Acting, subscription: Subscription) -> None:
    _require(acting, subscription.user or subscription.project or subscription.department)


def may_change(acting: Acting, subscription: Subscription) -> bool:
    """One's own, or of what one administers."""
    if subscription.user_id is not None:
        return acting.user is not None and subscription.user_id == acting.user.pk
    place = subscription.project or subscription.department
    return may(acting, Action.ADMINISTER) if place is None else may(acting, Action.GRANT, place)


def shown_address(to: str) -> str:
    """An address of a hook is as good as a password: only its host and last letters are told again."""
    if channel_of(to) == Channel.MAIL:
        return to
    scheme, _, rest = to.partition("://")
    place, _, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}/…{path[-4:] if len(path) > LONG else ''}"


def _require(acting: Acting, place: Place) -> None:
    if place is None:
        require(acting, Action.ADMINISTER)
    elif isinstance(place, User):
        if acting.user is None or place.pk != acting.user.pk:
            raise Forbidden("News of somebody's own work are theirs to ask for.")
    else:
        require(acting, Action.GRANT, place)


def _checked(place: Place, to: str, news: list[str], minutes: int) -> tuple[Channel, list[str]]:
    problems: list[Problem] = []
    channel = channel_of(to) if len(to) <= 2000 else None
    if channel is None:
        problems.append(Problem("to", "is not an address", shown(to), ALLOWED))
    elif channel != Channel.MAIL and (why := refused_at_sight(url_of(to), settings.BERTH_NOTIFY_NETWORKS)):
        problems.append(Problem("to", f"is not called: {why}", shown_address(to), CALLED))
    allowed = NEWS if place is None else OF_WORK if isinstance(place, User) else TOLD_OF_PLACES
    for word in news:
        if word not in allowed:
            problems.append(Problem("events", "is not told of there", shown(word), ", ".join(allowed)))
    if not news:
        problems.append(Problem("events", "names nothing", "", ", ".join(allowed)))
    if not 1 <= minutes <= MINUTES_MOST:
        span = f"1 to {MINUTES_MOST} minutes"
        problems.append(Problem("pending_minutes", "is not a time to wait", shown(minutes), span))
    if problems or channel is None:
        raise Invalid(problems)
    return channel, [word for word in NEWS if word in news]


def _columns(place: Place) -> dict[str, User | Department | Project | None]:
    if place is None:
        return {"user": None, "project": None, "department": None}
    if isinstance(place, User):
        return {"user": place, "project": None, "department": None}
    return {"user": None, "project": None, "department": None, **place_of(place)}


def _written(acting: Acting, action: str, row: Subscription, after: dict[str, object] | None) -> None:
    audit.write_down(acting, action, row, after=after, project=row.project, department=row.department)
