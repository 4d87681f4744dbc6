"""Save and remove project templates."""

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
MOST_EACH = 200
ABOUT_MOST = 200
TEXT_MOST = 64 * 1024
INSIDE = "document"  # where faults of the document itself are found


def save_template(
    *,
    acting: Acting,
    project: Project,
    name: str,
    text: str,
    about: str = "",
    expected_version: int | None = None,
) -> Template:
    """Makes or changes it; `expected_version` 0 means "there is none yet".

    Who may submit may make one; its maker and who administers the project may change it. Raises Invalid,
    Conflict (too many), PreconditionFailed, Forbidden, NotFound.
    """
    require(acting, Action.SUBMIT, project)
    _check(project, name, text, about)
    try:
        with with_living_references(project.name):
            there = Template.objects.select_for_update(of=("self",)).select_related("project__department")
            stored = there.filter(project=project, name=name).first()
            _guard(stored, expected_version)
            if stored is None and Template.objects.filter(project=project).count() >= MOST_EACH:
                raise Conflict(f"{project.name} has {MOST_EACH} templates: remove one first.")
            if stored is not None:
                require_change(acting, stored)
            template = stored or Template(project=project, name=name, made_by=acting.user, version=0)
            before = values_of(stored) if stored else None
            template.text, template.about = text, about
            if before != values_of(template):
                template.version = max(template.version + 1, time.time_ns() // 1000)
                template.changed_by = acting.name
                template.save()
                _written(acting, "save_template", template, before, values_of(template))
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("Somebody saved this template at the same moment: read it again.") from None
    return template


def remove_template(*, acting: Acting, template: Template, expected_version: int | None = None) -> None:
    """What was begun with it stays as it is."""
    with transaction.atomic():
        found = Template.objects.select_for_update(of=("self",)).select_related("project__department")
        locked = found.filter(pk=template.pk).first()
        if locked is None:
            raise NotFound("This template was removed already.")
        require_change(acting, locked)
        _guard(locked, expected_version)
        _written(acting, "remove_template", locked, values_of(locked), None)
        locked.delete()


def may_change(acting: Acting, template: Template) -> bool:
    """Its maker, as long as they may submit there, and who administers the project."""
    if may(acting, Action.OPERATE, template.project):
        return True
    mine = acting.user is not None and template.made_by_id == acting.user.pk
    return mine and may(acting, Action.SUBMIT, template.project)


def require_change(acting: Acting, template: Template) -> None:
    require(acting, Action.VIEW, template.project)
    if not may_change(acting, template):
        raise Forbidden("Only who made this template, and who administers its project, may change it.")


def document_of(template: Template) -> dict[str, Any]:
    """What one would submit: its project named, and itself as the name where it has none."""
    document = read_document(template.text)
    return {"name": template.name, **document, "project": template.project.name}


def values_of(template: Template) -> dict[str, Any]:
    return {"about": template.about, "document": template.text}


def _check(project: Project, name: str, text: str, about: str) -> None:
    problems: list[Problem] = []
    if not NAME.fullmatch(name):
        problems.append(Problem("name", "is not a name", shown(name), NAME_ALLOWED))
    if len(about) > ABOUT_MOST or hidden_character(about):
        allowed = f"one line of at most {ABOUT_MOST} characters"
        problems.append(Problem("description", "is not a line of text", shown(about), allowed))
    extra: dict[str, Any] = {}
    try:
        check_document(project, text)
    except Invalid as error:
        problems += [_inside(problem) for problem in error.problems]
        extra = error.extra
    if problems:
        raise Invalid(problems, **extra)


def check_document(project: Project, text: str) -> None:
    """One that could be submitted, but for what is filled in then. Raises Invalid."""
    if char := hidden_character(text, keep="\n\t\r"):
        raise Invalid([Problem("", f"holds the control character {char}", "", "printable characters")])
    if len(text) > TEXT_MOST:
        most = f"at most {TEXT_MOST:,} characters"
        raise Invalid([Problem("", "is too long for a template", f"{len(text):,} characters", most)])
    document = read_document(text)
    if is_manifest(document):
        raise Invalid([Problem("kind", "is an older system's manifest", "", "a workload document")])
    named = document.get("project")
    if named is not None and named != project.name:
        raise Invalid([Problem("project", "names another project", shown(named), project.name)])
    check_image(parse_workload({"name": "unnamed", **document}))


def _inside(problem: Problem) -> Problem:
    path = f"{INSIDE}.{problem.path}" if problem.path else INSIDE
    return Problem(path, problem.message, problem.received, problem.allowed)


def _guard(template: Template | None, expected: int | None) -> None:
    present = template.version if template else 0
    if expected is not None and expected != present:
        raise PreconditionFailed(
            "Somebody changed this template since you read it." if template else "There is no such template.",
            version=present,
        )


def _written(
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
