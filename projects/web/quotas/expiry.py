"""Parse the expiry of a quota change, as entered in a form."""

from datetime import UTC, datetime, tzinfo

from berth.core.errors import Invalid
from berth.core.problems import Problem
from projects.services.quotas.expiry import MAX_LIFETIME


def parse_expiry(text: str, zone: tzinfo, now: datetime) -> datetime | None:
    """Return when the change expires, or None if the text is empty.

    A time without an offset is in `zone`. Raises Invalid with a sentence about the field.
    """
    if not text.strip():
        return None
    try:
        entered = datetime.fromisoformat(text.strip())
        expiry = (entered if entered.tzinfo else entered.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _expiry_error("Enter a date and a time.") from None
    if expiry <= now:
        raise _expiry_error("This time is in the past. Enter a later time.")
    if expiry > now + MAX_LIFETIME:
        raise _expiry_error(f"Enter a time within the next {MAX_LIFETIME.days} days.")
    return expiry


def _expiry_error(sentence: str) -> Invalid:
    return Invalid([Problem("expires_at", sentence)])
