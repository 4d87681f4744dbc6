"""Default values for a kind of workload that the user chooses in the form."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.http import QueryDict

from berth.core.errors import Invalid
from berth.documents import CannotEdit, edit_text, read_document
from berth.documents.edits import ABSENT
from projects.models import Project
from projects.services.workloads import free_name
from scheduler.web.submit.document_presets import DEFAULT_EXAMPLE, EXAMPLES, HEADER, ORDER
from scheduler.web.submit.form.draft import Draft, open_draft

IDENTITY = ("name", "project", "kind")  # keys that do not show whether the user has edited an example


def apply_kind_defaults(draft: Draft, post: QueryDict) -> None:
    """Adapt an example to the kind that the user has just chosen in the form.

    An unedited example is replaced by the example of that kind. In an edited example, values that the user
    has edited are kept. Documents with a different command stay unchanged.
    """
    before, typed, data = _read(post.get("agreed", "")), _read(post.get("document", "")), draft.data
    if before is None or typed is None or data is None:
        return
    kind = data.get("kind")
    if kind == before.get("kind") or typed.get("kind") == kind:  # kind unchanged, or edited in the document
        return
    target = DEFAULT_EXAMPLE if kind is None else kind
    example = next(_matching_examples(before.get("kind"), data), None)
    if target not in EXAMPLES or example is None:
        return
    old_name, old = example
    _, new_name, body = EXAMPLES[target]
    name = _adapt_name(data, old_name, new_name)
    if _remove_identity(data) == _remove_identity(old):
        text = edit_text(HEADER.format(name="a", project="a") + body, ("name",), name, order=ORDER)
        text = edit_text(text, ("project",), data.get("project", ABSENT), order=ORDER)
    else:
        text = edit_text(draft.text, ("name",), name, order=ORDER)
        text = _replace_default_values(text, data, old, read_document(body))
    changed = open_draft(text)
    draft.text, draft.agreed, draft.data = changed.text, changed.agreed, changed.data


def _matching_examples(kind: Any, data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (default name, document) of each example of `kind` with the content or command of `data`."""
    for _, name, body in EXAMPLES.values():
        document = read_document(body)
        is_unedited = _remove_identity(document) == _remove_identity(data)
        has_same_command = "command" in document and document["command"] == data.get("command")
        if document.get("kind") == kind and (is_unedited or has_same_command):
            yield name, document


def _replace_default_values(
    text: str, data: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> str:
    """Replace the old example's values with the new example's, except values that the user has changed.

    The user's roles are kept.
    """
    for key in dict.fromkeys([*old, *new]):
        if key in (*IDENTITY, "roles") or data.get(key) != old.get(key):
            continue
        with contextlib.suppress(CannotEdit):
            text = edit_text(text, (key,), new.get(key, ABSENT), order=ORDER)
    return text


def _adapt_name(data: Mapping[str, Any], old: str, new: str) -> Any:
    """Return the name that the user has chosen.

    If the name is still a default, return a free default for the new kind.
    """
    name = data.get("name", ABSENT)
    if not isinstance(name, str) or not re.fullmatch(rf"{re.escape(old)}(-\d+)?", name) or old == new:
        return name
    project = Project.objects.filter(name=str(data.get("project"))).first()
    return free_name(project, new) if project is not None else new


def _remove_identity(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in IDENTITY}


def _read(text: str) -> dict[str, Any] | None:
    with contextlib.suppress(Invalid):
        return read_document(text)
    return None
