"""Convert the two replica fields into `replicas`, or `min` and `max`."""

from collections.abc import Mapping, Sequence
from typing import Any

from berth.documents import SourceLines, edit_text
from berth.documents.edits import ABSENT
from berth.documents.values import Location, value_at
from scheduler.web.submit.form import field_kinds
from scheduler.web.submit.form.fields import MAX_REPLICAS, MIN_REPLICAS


def format_replicas(at: Location, data: Mapping[str, Any], places: SourceLines) -> str | None:
    """Return the text to show in a replica field, or None if the field cannot show the value."""
    role = at[:-1]
    has_size = value_at(data, (*role, "replicas")) is not None
    if at[-1] == MAX_REPLICAS:
        return (
            ""
            if has_size and value_at(data, (*role, "max")) is None
            else _format_amount(data, places, (*role, "max"))
        )
    return _format_amount(data, places, (*role, "replicas" if has_size else "min"))


def write_replicas(text: str, data: Mapping[str, Any], at: Location, typed: str, order: Sequence[str]) -> str:
    role = at[:-1]
    places = SourceLines.from_text(text)
    texts = {
        which: format_replicas((*role, which), data, places) or "" for which in (MIN_REPLICAS, MAX_REPLICAS)
    }
    texts[str(at[-1])] = typed.strip()
    least, most = (
        field_kinds.AMOUNT.parse_text(texts[which], None) for which in (MIN_REPLICAS, MAX_REPLICAS)
    )
    elastic = most is not ABSENT and (most != least or least == 0)
    new_values = {
        "replicas": ABSENT if elastic else least,
        "min": least if elastic else ABSENT,
        "max": most if elastic else ABSENT,
    }
    for key, value in new_values.items():
        text = edit_text(text, (*role, key), value, order=order)
    return text


def _format_amount(data: Mapping[str, Any], places: SourceLines, at: Location) -> str | None:
    return field_kinds.AMOUNT.format_value(value_at(data, at), places.scalars.get(at))
