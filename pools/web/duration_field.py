"""Form field for a duration with a unit."""

import re
from typing import Any

from django import forms

from berth.core.values.durations import parse_duration

UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
WORDS = (
    (re.compile(r"(?<=\d)(days?|d)(?![a-z])"), "d"),
    (re.compile(r"(?<=\d)(hours?|hr|h)(?![a-z])"), "h"),
    (re.compile(r"(?<=\d)(minutes?|min|m)(?![a-z])"), "m"),
    (re.compile(r"(?<=\d)(seconds?|sec|s)(?![a-z])"), "s"),
)
PRECISE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s(?:ec(?:onds?)?)?|)", re.ASCII)
ALLOWED = "a duration, for example 90 s, 10 min or 1 h 30 min"


class DurationField(forms.CharField):
    """Duration, such as "10 min".

    A number without a unit is in seconds. The value of the field is in seconds.
    """

    def __init__(
        self, *, label: str, initial: int | None = None, help_text: str = "", **options: Any
    ) -> None:
        super().__init__(label=label, initial=initial, help_text=help_text, max_length=40, **options)

    def clean(self, value: Any) -> float | None:
        """Return the number of seconds, or None if an optional field is empty."""
        text = "".join(super().clean(value).lower().split())
        if not text:
            return None
        for pattern, unit in WORDS:
            text = pattern.sub(unit, text)
        seconds = int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else parse_duration(text)
        if seconds is None:
            raise forms.ValidationError(f"Enter {ALLOWED}.")
        return seconds

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != initial)
        except forms.ValidationError:
            return True

    def prepare_value(self, value: Any) -> Any:
        """Format a stored number of seconds. Text that the user has entered is left as it is."""
        return format_exactly(value) if isinstance(value, int) else value


class PreciseDurationField(DurationField):
    """Duration that may also be a fraction of a second, such as "2.5 s" or "500 ms"."""

    def clean(self, value: Any) -> float | None:
        text = "".join(str(value or "").lower().split())
        if (match := PRECISE.fullmatch(text)) is None:
            return super().clean(value)
        seconds = float(match[1]) / (1000 if match[2] == "ms" else 1)
        return int(seconds) if seconds.is_integer() else seconds

    def prepare_value(self, value: Any) -> Any:
        return f"{value:g} s" if isinstance(value, float) else super().prepare_value(value)


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
