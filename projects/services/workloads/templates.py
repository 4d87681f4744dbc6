"""Set and delete project templates."""

import re
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict, Forbidden, Invalid, NotFound
from berth.core.problems import Problem, format_value
from berth.core.spec import parse_workload
from berth.core.spec.parsing.manifest import is_manifest
from berth.core.spec.values.texts import NAME_ALLOWED, find_control_character
from berth.core.wording.words import join_words
from berth.db.writes.references import check_foreign_keys
from berth.documents import read_document
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Project, Schedule, Template
from projects.services.project_rows import audit_change, check_version, may_change_row, next_version
from projects.services.workloads.checks.runtimes import check_image

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
MAX_PER_PROJECT = 200
MAX_DESCRIPTION = 200
MAX_TEXT = 64 * 1024
MAX_LISTED = 5  # maximum number of schedules named in an error message
DOCUMENT_PATH = "document"  # prefix for the paths in the document's validation errors


def set_template(
    *,
    actor: Actor,
    project: Project,
    name: str,
    text: str,
    description: str = "",
    expected_version: int | None = None,
) -> Template:
    """Create or change a template.

    If `expected_version` is 0, the template must not exist yet. Raises Invalid, PreconditionFailed,
    Forbidden, NotFound, or Conflict if the project has too many templates.
    """
    require(actor, Action.SUBMIT, project)
    _check_template(project, name, text, description)
    with check_foreign_keys(project.name, created="this template"):
        rows = Template.objects.select_for_update(of=("self",)).select_related("project__department")
        stored = rows.filter(project=project, name=name).first()
        check_version(stored, expected_version, "template")
        if stored is None and Template.objects.filter(project=project).count() >= MAX_PER_PROJECT:
            raise Conflict(f"{project.name} already has {MAX_PER_PROJECT} templates. Delete one first.")
        if stored is not None:
            require_change_permission(actor, stored)
        template = stored or Template(project=project, name=name, made_by=actor.user, version=0)
        before = template_values(stored) if stored else None
        template.text, template.description = text, description
        if before != template_values(template):
            template.version = next_version(template.version)
            template.changed_by = actor.name
            template.save()
            audit_change(actor, "set_template", template, before, template_values(template))
    return template


def delete_template(*, actor: Actor, template: Template, expected_version: int | None = None) -> None:
    """Delete a template.

    Workloads created from it are kept. Raises NotFound, Forbidden, PreconditionFailed, or Conflict if
    schedules use the template.
    """
    with transaction.atomic():
        rows = Template.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = rows.filter(pk=template.pk).first()
        if locked is None:
            raise NotFound("This template has been deleted.")
        require_change_permission(actor, locked)
        check_version(locked, expected_version, "template")
        if names := schedule_names(locked):
            raise Conflict(_in_use_message(names), schedules=names)
        audit_change(actor, "delete_template", locked, template_values(locked))
        locked.delete()


def schedule_names(template: Template) -> list[str]:
    """Return the names of the schedules that submit workloads from the template, in alphabetical order."""
    rows = Schedule.objects.filter(project=template.project, template=template.name).order_by("name")
    return list(rows.values_list("name", flat=True))


def may_change(actor: Actor, template: Template) -> bool:
    """Return whether the user is a project admin, or the author with permission to submit to the project."""
    return may_change_row(actor, template.project, template.made_by_id)


def require_change_permission(actor: Actor, template: Template) -> None:
    require(actor, Action.VIEW, template.project)
    if not may_change(actor, template):
        raise Forbidden(
            "Only the author of this template and admins of its project may change it. Ask one of them."
        )


def template_document(template: Template) -> dict[str, Any]:
    """Return the document to submit, with the project added. Its name defaults to the template's name."""
    document = read_document(template.text)
    return {"name": template.name, **document, "project": template.project.name}


def template_values(template: Template) -> dict[str, Any]:
    return {"description": template.description, "document": template.text}


def _in_use_message(names: list[str]) -> str:
    if len(names) == 1:
        return f"Schedule {names[0]} uses this template. Edit or delete the schedule first."
    more = [f"{len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
    listed = join_words([*names[:MAX_LISTED], *more])
    return f"Schedules {listed} use this template. Edit or delete these schedules first."


def _check_template(project: Project, name: str, text: str, description: str) -> None:
    problems: list[Problem] = []
    if not NAME.fullmatch(name):
        problems.append(Problem("name", "is not a valid name", format_value(name), NAME_ALLOWED))
    if len(description) > MAX_DESCRIPTION or find_control_character(description):
        allowed = f"a single line of at most {MAX_DESCRIPTION} characters"
        problems.append(
            Problem("description", "is not a single line of text", format_value(description), allowed)
        )
    extra: dict[str, Any] = {}
    try:
        check_document(project, text)
    except Invalid as error:
        problems += [_prefix_document_path(problem) for problem in error.problems]
        extra = error.extra
    if problems:
        raise Invalid(problems, **extra)


def check_document(project: Project, text: str) -> None:
    """Raise Invalid if the text, with its defaults filled in, could not be submitted."""
    if char := find_control_character(text, keep="\n\t\r"):
        raise Invalid([Problem("", f"contains the control character {char}", "", "printable characters")])
    if len(text) > MAX_TEXT:
        limit = f"at most {MAX_TEXT:,} characters"
        raise Invalid([Problem("", "is too long for a template", f"{len(text):,} characters", limit)])
    document = read_document(text)
    if is_manifest(document):
        raise Invalid([Problem("kind", "is a manifest in an older format", "", "a workload document")])
    project_name = document.get("project")
    if project_name is not None and project_name != project.name:
        raise Invalid([Problem("project", "names another project", format_value(project_name), project.name)])
    check_image(parse_workload({"name": "unnamed", **document}))


def _prefix_document_path(problem: Problem) -> Problem:
    path = f"{DOCUMENT_PATH}.{problem.path}" if problem.path else DOCUMENT_PATH
    return Problem(path, problem.message, problem.received, problem.allowed)
