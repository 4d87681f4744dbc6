"""Replace document paths in edit events with the labels of form fields."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from berth.core.problems import join_path
from berth.core.values.durations import format_duration
from scheduler.web.submit.form.field_kinds import MEMORY, SECONDS_KIND, format_memory
from scheduler.web.submit.form.fields import FormChoices, FormField, build_parts
from scheduler.web.submit.form.presentation import KEYS_OF_REPLICAS


def replace_paths_with_labels(message: str, paths: Iterable[str], document: Mapping[str, Any]) -> str:
    """Replace the document paths in an event's message with form labels.

    For example, `roles[0].replicas: 7 -> 6` becomes "Replicas: 7 → 6".
    """
    fields = _fields_by_path(document)
    start, separator, changes = message.partition(": ")
    for path in sorted(paths, key=len, reverse=True):
        label, field = fields.get(path, (path, None))
        pattern = rf"{re.escape(path)}(: (?P<before>\S+) -> (?P<after>[^\s;.]+))?"
        changes = re.sub(pattern, partial(_format_change, label=label, field=field), changes)
    return f"{start}{separator}{changes.replace(' -> ', ' → ')}"


def _format_change(match: re.Match[str], *, label: str, field: FormField | None) -> str:
    before, after = match["before"], match["after"]
    if before is None:
        return label
    formats = {SECONDS_KIND: format_duration, MEMORY: format_memory}
    if field is not None and (to_text := formats.get(field.kind)):
        before, after = (to_text(int(text)) if text.isdigit() else text for text in (before, after))
    return f"{label}: {before} → {after}"


def _fields_by_path(document: Mapping[str, Any]) -> dict[str, tuple[str, FormField | None]]:
    """Return the label and the form field for each value that the form shows, keyed by the value's path."""
    fields: dict[str, tuple[str, FormField | None]] = {}
    for part in build_parts(document, FormChoices(for_edit=True)):
        for field in (*part.fields, *part.more):
            *place, key = field.at
            for name in KEYS_OF_REPLICAS.get(key, (str(key),)):
                label = f"{part.title}, {field.label}" if part.at is not None else field.label
                fields[join_path((*place, name))] = label, field
    return fields
