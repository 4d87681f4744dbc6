"""Changes to a workload's document as the edit page shows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.core.merge_patch import differences, format_value_briefly
from berth.core.problems import join_path
from berth.core.spec.parsing.manifest import is_manifest
from berth.core.values.durations import format_duration
from berth.documents.units import without_units
from projects.models import Workload
from projects.services.workloads import DocumentChange
from scheduler.web.submit.form.field_kinds import MEMORY, PAIRS, SECONDS_KIND, format_memory
from scheduler.web.submit.form.fields import FormField
from scheduler.web.submit.form.presentation import ShownForm


def find_unchecked_changes(workload: Workload, document: Mapping[str, Any] | None) -> list[DocumentChange]:
    """Return the changes of a document that may be invalid. Defaults are not filled in."""
    if document is None or is_manifest(dict(document)):
        return []
    before = {**workload.spec, "project": workload.project.name}
    after = {"project": workload.project.name, **without_units(dict(document))}
    return [DocumentChange(join_path(path), old, new) for path, old, new in differences(before, after)]


@dataclass(frozen=True, slots=True)
class ShownChange:
    """Changed value. `label` is the label of its form field or, without a field, its path in the document."""

    label: str
    is_path: bool
    before: str
    after: str


def describe_change(change: DocumentChange, shown: ShownForm) -> ShownChange:
    """Return the change for display, and mark its field in the form."""
    fields = shown.labelled_fields
    label, field_shown = fields.get(change.path, (change.path, None))
    parent, _, key = change.path.rpartition(".")
    if field_shown is None and parent in fields and fields[parent][1].form_field.kind is PAIRS:
        before, after = (format_value_briefly(value) for value in (change.before, change.after))
        return ShownChange(f"{fields[parent][0]}, {key}", False, before, after)
    form_field = None if field_shown is None else field_shown.form_field
    before, after = (_format_value(value, form_field) for value in (change.before, change.after))
    if field_shown is not None:
        field_shown.stored = before
    return ShownChange(label, field_shown is None, before, after)


def _format_value(value: Any, form_field: FormField | None) -> str:
    if form_field is not None and form_field.kind is SECONDS_KIND and isinstance(value, int):
        return format_duration(value)
    if form_field is not None and form_field.kind is MEMORY and isinstance(value, int):
        return format_memory(value)
    if form_field is not None and form_field.kind is PAIRS and isinstance(value, dict):
        return ", ".join(f"{key}={format_value_briefly(text)}" for key, text in value.items())
    if form_field is not None and value is None and (default := dict(form_field.choices).get("")):
        return default
    if form_field is not None and isinstance(value, str | int | bool):
        return dict(form_field.choices).get(str(value), format_value_briefly(value))
    return format_value_briefly(value)
