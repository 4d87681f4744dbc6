"""Convert the two replica fields into `replicas`, or `min` and `max`."""

from collections.abc import Mapping, Sequence
from typing import Any

from berth.documents import Places, edited
from berth.documents.edits import ABSENT
from berth.documents.values import Location, value_at
from scheduler.web.submit.form import field_kinds
from scheduler.web.submit.form.fields import LEAST, MOST


def shown(at: Location, data: Mapping[str, Any], places: Places) -> str | None:
    """Return the text of a replica field. The maximum is empty if the role has a fixed size."""
    role = at[:-1]
    has_size = value_at(data, (*role, "replicas")) is not None
    if at[-1] == MOST:
        return (
            ""
            if has_size and value_at(data, (*role, "max")) is None
            else _amount_text(data, places, (*role, "max"))
        )
    return _amount_text(data, places, (*role, "replicas" if has_size else "min"))


def written(text: str, data: Mapping[str, Any], at: Location, typed: str, order: Sequence[str]) -> str:
    role = at[:-1]
    places = Places.of(text)
    texts = {which: shown((*role, which), data, places) or "" for which in (LEAST, MOST)}
    texts[str(at[-1])] = typed.strip()
    least, most = (field_kinds.AMOUNT.meant(texts[which], None) for which in (LEAST, MOST))
    elastic = most is not ABSENT and (most != least or least == 0)
    wanted = {
        "replicas": ABSENT if elastic else least,
        "min": least if elastic else ABSENT,
        "max": most if elastic else ABSENT,
    }
    for key, value in wanted.items():
        text = edited(text, (*role, key), value, order=order)
    return text


def _amount_text(data: Mapping[str, Any], places: Places, at: Location) -> str | None:
    return field_kinds.AMOUNT.shown(value_at(data, at), places.scalars.get(at))
