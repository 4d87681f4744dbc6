"""Form field for a duration with a unit."""

import re
from typing import Any

from django import forms

from berth.core.durations import parse_duration

UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
WORDS = (
    (re.compile(r"(?<=\d)(days?|d)(?![a-z])"), "d"),
    (re.compile(r"(?<=\d)(hours?|hr|h)(?![a-z])"), "h"),
    (re.compile(r"(?<=\d)(minutes?|min|m)(?![a-z])"), "m"),
    (re.compile(r"(?<=\d)(seconds?|sec|s)(?![a-z])"), "s"),
)
ALLOWED = "a duration, for example 90 s, 10 min or 1 h 30 min"


class DurationField(forms.CharField):
    """Duration, such as "10 min". Without a unit, it is in seconds. The value of the field is in seconds."""

    def __init__(self, *, label: str, initial: int, help_text: str = "") -> None:
        super().__init__(label=label, initial=initial, help_text=help_text, max_length=40)

    def clean(self, value: Any) -> int:
        text = "".join(super().clean(value).lower().split())
        for pattern, unit in WORDS:
            text = pattern.sub(unit, text)
        seconds = int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else parse_duration(text)
        if seconds is None:
            raise forms.ValidationError(f"Enter {ALLOWED}.")
        return seconds

    def prepare_value(self, value: Any) -> Any:
        """Format a stored number of seconds. Return text that the user entered unchanged."""
        return format_exactly(value) if isinstance(value, int) else value


def format_exactly(seconds: int) -> str:
    """Format a duration with all of its units, such as "1 h 30 min" or "90 s"."""
    if seconds % 60 and seconds < 600:
        return f"{seconds} s"
    parts = []
    for unit, size in UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts) or "0 s"
