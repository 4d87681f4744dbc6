"""Set and delete project templates."""

import re
import time
from typing import Any

from django.db import IntegrityError, transaction
from psycopg.errors import UniqueViolation

from berth.core.errors import Conflict, Forbidden, Invalid, NotFound, PreconditionFailed
from berth.core.problems import Problem, shown
from berth.core.spec import parse_workload
from berth.core.spec.manifest import is_manifest
from berth.core.spec.texts import NAME_ALLOWED, hidden_character
from berth.db.references import with_living_references
from berth.documents import read_document
from projects.access import Action, may, require
from projects.acting import Acting
from projects.models import Project, Template
from projects.services import announce, audit
from projects.services.workloads.runtime_support import check_image

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
MAX_PER_PROJECT = 200
MAX_DESCRIPTION = 200
MAX_TEXT = 64 * 1024
DOCUMENT_PATH = "document"  # path prefix of problems within the document


def set_template(
    *,
    acting: Acting,
    project: Project,
    name: str,
    text: str,
    description: str = "",
    expected_version: int | None = None,
) -> Template:
    """Create or change a template. `expected_version` 0 means "none yet".

    Members of the project may create templates. The author and project admins may change them. Raises
    Invalid, Conflict for too many templates, PreconditionFailed, Forbidden, NotFound.
    """
    require(acting, Action.SUBMIT, project)
    _check(project, name, text, description)
    try:
        with with_living_references(project.name):
            rows = Template.objects.select_for_update(of=("self",)).select_related("project__department")
            stored = rows.filter(project=project, name=name).first()
            _check_version(stored, expected_version)
            if stored is None and Template.objects.filter(project=project).count() >= MAX_PER_PROJECT:
                raise Conflict(f"{project.name} already has {MAX_PER_PROJECT} templates. Delete one first.")
            if stored is not None:
                require_change(acting, stored)
            template = stored or Template(project=project, name=name, made_by=acting.user, version=0)
            before = values_of(stored) if stored else None
            template.text, template.description = text, description
            if before != values_of(template):
                template.version = max(template.version + 1, time.time_ns() // 1000)
                template.changed_by = acting.name
                template.save()
                _record(acting, "set_template", template, before, values_of(template))
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("This template was created in the meantime. Read it again.") from None
    return template


def delete_template(*, acting: Acting, template: Template, expected_version: int | None = None) -> None:
    """Delete a template. Workloads created from it stay."""
    with transaction.atomic():
        rows = Template.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = rows.filter(pk=template.pk).first()
        if locked is None:
            raise NotFound("This template was already deleted.")
        require_change(acting, locked)
        _check_version(locked, expected_version)
        _record(acting, "delete_template", locked, values_of(locked), None)
        locked.delete()


def may_change(acting: Acting, template: Template) -> bool:
    """Return True for project admins, and for the author as long as they may submit to the project."""
    if may(acting, Action.OPERATE, template.project):
        return True
    is_author = acting.user is not None and template.made_by_id == acting.user.pk
    return is_author and may(acting, Action.SUBMIT, template.project)


def require_change(acting: Acting, template: Template) -> None:
    require(acting, Action.VIEW, template.project)
    if not may_change(acting, template):
        raise Forbidden("Only the author of this template and admins of its project may change it.")


def document_of(template: Template) -> dict[str, Any]:
    """Return the document to submit, with the project and, by default, the template's name."""
    document = read_document(template.text)
    return {"name": template.name, **document, "project": template.project.name}


def values_of(template: Template) -> dict[str, Any]:
    return {"description": template.description, "document": template.text}


def _check(project: Project, name: str, text: str, description: str) -> None:
    problems: list[Problem] = []
    if not NAME.fullmatch(name):
        problems.append(Problem("name", "is not a name", shown(name), NAME_ALLOWED))
    if len(description) > MAX_DESCRIPTION or hidden_character(description):
        allowed = f"one line of at most {MAX_DESCRIPTION} characters"
        problems.append(Problem("description", "is not a single line of text", shown(description), allowed))
    extra: dict[str, Any] = {}
    try:
        check_document(project, text)
    except Invalid as error:
        problems += [_under_document(problem) for problem in error.problems]
        extra = error.extra
    if problems:
        raise Invalid(problems, **extra)


def check_document(project: Project, text: str) -> None:
    """Raise Invalid unless the text could be submitted with its defaults filled in."""
    if char := hidden_character(text, keep="\n\t\r"):
        raise Invalid([Problem("", f"contains the control character {char}", "", "printable characters")])
    if len(text) > MAX_TEXT:
        limit = f"at most {MAX_TEXT:,} characters"
        raise Invalid([Problem("", "is too long for a template", f"{len(text):,} characters", limit)])
    document = read_document(text)
    if is_manifest(document):
        raise Invalid([Problem("kind", "is a manifest of an older system", "", "a workload document")])
    project_name = document.get("project")
    if project_name is not None and project_name != project.name:
        raise Invalid([Problem("project", "names another project", shown(project_name), project.name)])
    check_image(parse_workload({"name": "unnamed", **document}))


def _under_document(problem: Problem) -> Problem:
    path = f"{DOCUMENT_PATH}.{problem.path}" if problem.path else DOCUMENT_PATH
    return Problem(path, problem.message, problem.received, problem.allowed)


def _check_version(template: Template | None, expected: int | None) -> None:
    current = template.version if template else 0
    if expected is not None and expected != current:
        raise PreconditionFailed(
            "This template was changed since you read it." if template else "This template does not exist.",
            version=current,
        )


def _record(
    acting: Acting,
    action: str,
    template: Template,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    if before and after:
        before, after = audit.differences(before, after)
    audit.write_down(acting, action, template, before=before, after=after, project=template.project)
    announce.tenants_changed(project_id=template.project_id)
