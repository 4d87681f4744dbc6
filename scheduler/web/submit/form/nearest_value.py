"""Suggest a valid value for a form field whose text is misspelled."""

import re

from berth.core.problems import closest_match
from scheduler.web.submit.form.field_kinds import (
    CHOICE,
    DURATION,
    INTEGER,
    MEMORY,
    MEMORY_TEXT,
    NUMBER_CHOICE,
    SECONDS_KIND,
)
from scheduler.web.submit.form.fields import FormField

# A number and a unit that begins with s, m, h or d, except months, milliseconds and microseconds.
MISSPELLED_DURATION = re.compile(r"([0-9]{1,12})\s*([shd]|m(?!o|s|il|ic))[a-z]*", re.ASCII)
MISSPELLED_MEMORY = re.compile(r"([0-9]{1,12})\s*([MGT])[A-Z]*", re.ASCII)


def find_nearest_value(form_field: FormField, text: str) -> str:
    """Return the valid value that resembles the field's text, such as "8h" for "8 hurs".

    Return "" if there is no such value or the text is well-formed.
    """
    written = text.strip()
    if form_field.kind in (CHOICE, NUMBER_CHOICE):
        values = [value for value, _ in form_field.choices if value]
        return "" if written in values else closest_match(written.lower(), values)
    if form_field.kind is SECONDS_KIND and is_invalid_duration(form_field, text):
        match = MISSPELLED_DURATION.fullmatch(written.lower())
        return f"{match[1]}{match[2]}" if match else ""
    if form_field.kind is MEMORY:
        match = MISSPELLED_MEMORY.fullmatch(written.upper())
        return f"{match[1]} {match[2]}iB" if match and not MEMORY_TEXT.fullmatch(written) else ""
    return ""


def is_invalid_duration(form_field: FormField, text: str) -> bool:
    """Return whether the field expects a duration and its text is neither a duration nor a number."""
    written = text.strip()
    is_well_formed = not written or DURATION.fullmatch(written) or INTEGER.fullmatch(written)
    return form_field.kind is SECONDS_KIND and not is_well_formed
