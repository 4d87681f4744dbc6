"""Changes to a workload's document as the edit page shows them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.merge_patch import differences, format_value_briefly
from berth.core.problems import join_path
from berth.core.spec import RoleSpec
from berth.core.spec.parsing.manifest import is_manifest
from berth.core.values.durations import format_duration
from berth.documents.units import without_units
from projects.models import Workload
from projects.services.workloads import DocumentChange
from scheduler.web.submit.form.field_kinds import MEMORY, PAIRS, SECONDS_KIND, format_memory
from scheduler.web.submit.form.fields import FormField
from scheduler.web.submit.form.presentation import RenderedForm

ROLES, NOTIFICATIONS = "roles", "notifications"
DEFAULT_NAME = RoleSpec.model_fields["name"].default


def find_unchecked_changes(workload: Workload, document: Mapping[str, Any] | None) -> list[DocumentChange]:
    """Return the changes that a possibly invalid document makes. Defaults are not filled in."""
    if document is None or is_manifest(dict(document)):
        return []
    before = {**workload.spec, "project": workload.project.name}
    after = {"project": workload.project.name, **without_units(dict(document))}
    return [DocumentChange(join_path(path), old, new) for path, old, new in differences(before, after)]


@dataclass(frozen=True, slots=True)
class LabeledChange:
    """Changed value.

    `label` is the label of its form field. If there is no such field, `label` is the path in the document.
    """

    label: str
    is_path: bool
    before: str
    after: str


def describe_changes(changes: Sequence[DocumentChange], shown: RenderedForm) -> list[LabeledChange]:
    """Return the changes for display. Roles that were added or removed are named one by one."""
    return [each for change in changes for each in _describe(change, shown)]


def _describe(change: DocumentChange, shown: RenderedForm) -> Iterator[LabeledChange]:
    if change.path == NOTIFICATIONS:
        yield LabeledChange("Notifications", False, _addresses(change.before), _addresses(change.after))
        return
    before, after = _roles_by_name(change.before), _roles_by_name(change.after)
    if change.path != ROLES or before is None or after is None:
        yield describe_change(change, shown)
        return
    for name, role in before.items():
        if name not in after:
            yield LabeledChange(f"Role {name} removed", False, _describe_role(role), "")
    for number, (name, role) in enumerate(after.items()):
        if name not in before:
            yield LabeledChange(f"Role {name} added", False, "", _describe_role(role))
            continue
        for path, old, new in differences(before[name], role, ROLES, number):
            yield describe_change(DocumentChange(join_path(path), old, new), shown)


def _roles_by_name(roles: Any) -> dict[str, Mapping[str, Any]] | None:
    """Return the roles by name, or None unless `roles` is a list of roles with distinct names."""
    if not isinstance(roles, list) or not all(isinstance(role, Mapping) for role in roles):
        return None
    by_name = {str(role.get("name", DEFAULT_NAME)): role for role in roles}
    return by_name if len(by_name) == len(roles) else None


def _addresses(notifications: Any) -> str:
    if not isinstance(notifications, list) or not all(isinstance(each, Mapping) for each in notifications):
        return format_value_briefly(notifications)
    return ", ".join(str(each.get("to") or "no address") for each in notifications)


def _describe_role(role: Mapping[str, Any]) -> str:
    """Return the role's size, such as "2 replicas, 1 GPU each"."""
    replicas = role.get("replicas", role.get("min", 1))
    texts = [f"{replicas} replica{'' if replicas == 1 else 's'}"]
    if gpus := role.get("gpu"):
        texts.append(f"{gpus} GPU{'' if gpus == 1 else 's'}{'' if replicas == 1 else ' each'}")
    return ", ".join(texts)


def describe_change(change: DocumentChange, shown: RenderedForm) -> LabeledChange:
    """Return the change for display, and mark its field in the form."""
    fields = shown.labelled_fields
    label, field_shown = fields.get(change.path, (change.path, None))
    parent, _, key = change.path.rpartition(".")
    if field_shown is None and parent in fields and fields[parent][1].form_field.kind is PAIRS:
        before, after = (format_value_briefly(value) for value in (change.before, change.after))
        return LabeledChange(f"{fields[parent][0]}, {key}", False, before, after)
    form_field = None if field_shown is None else field_shown.form_field
    before, after = (_format_value(value, form_field) for value in (change.before, change.after))
    if field_shown is not None:
        field_shown.stored = before
    return LabeledChange(label, field_shown is None, before, after)


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
        choice = form_field.choice_for(str(value))
        return dict(form_field.choices).get(choice, format_value_briefly(value))
    return format_value_briefly(value)
