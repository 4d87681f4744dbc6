"""Pages for project templates."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django import forms
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import BerthError, Forbidden, Invalid, PreconditionFailed
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem
from berth.server.web.error_sentences import describe_problem
from berth.server.web.faults import add_form_errors
from berth.server.web.forms import Form
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.tables import Column, list_query, requested_csv
from berth.server.web.pages import (
    Request,
    confirm_page,
    form_page,
    open_url,
    page,
    render_refusal,
    signed_in,
    success_response,
)
from projects.access import Action, may
from projects.known_names import unknown_project_problem
from projects.models import Project, Template
from projects.selectors import find_project, schedules, templates
from projects.services.workloads import templates as service
from scheduler.web.submit.document_presets import template_text, template_text_from_workload
from scheduler.web.submit.form.draft import Draft, apply_form_action, open_draft, read_draft
from scheduler.web.submit.form.fields import FormChoices
from scheduler.web.submit.form.presentation import prepare_form
from scheduler.web.submit.form_choices import choices_for, submittable_projects

SAVE = "save"
# Template, whether the user may use and edit it, requested resources, and schedules that use it.
Row = tuple[Template, bool, bool, str, list[str]]
COLUMNS: tuple[Column[Row], ...] = (
    Column("name", "Template", lambda row: row[0].name, order="name"),
    Column("project", "Project", lambda row: row[0].project.name, order="project__name", is_secondary=True),
    Column("description", "Description", lambda row: row[0].description),
    Column("requests", "Requests", lambda row: row[3]),
    Column("schedules", "Schedules", lambda row: ", ".join(row[4])),
    Column("changed", "Changed", lambda row: row[0].changed_at, order="changed_at"),
    Column("by", "Changed by", lambda row: row[0].changed_by, is_csv_only=True),
)


class SaveForm(Form):
    """Form for a new template's name and description."""

    project = forms.ChoiceField(label="Project")
    name = forms.CharField(label="Name", max_length=63, help_text="Lowercase letters, digits and hyphens.")
    description = forms.CharField(label="Description", max_length=service.MAX_DESCRIPTION, required=False)
    document = forms.CharField(widget=forms.HiddenInput, strip=False)


def describe_request(text: str) -> str:
    """Describe the total request of a template's roles, such as "2 GPUs" or "4 replicas of 2 GPUs".

    Return "" for a template without roles.
    """
    roles = (open_draft(text).data or {}).get("roles")
    if not isinstance(roles, list):
        return ""
    return ", ".join(filter(None, (_describe_role(role) for role in roles if isinstance(role, dict))))


def _describe_role(role: dict[str, Any]) -> str:
    least = role.get("min", role.get("replicas", 1))
    most = role.get("max", least)
    replicas = "" if most == least == 1 else f"{least} replicas of "
    if most != least:
        replicas = f"{least} to {most} replicas of "
    for key, noun in (("gpu", "GPU"), ("cpu", "CPU")):
        amount = role.get(key)
        if isinstance(amount, int | float) and amount:
            return f"{replicas}{amount:g} {noun}{'' if amount == 1 else 's'}"
    return ""


@dataclass
class TemplatePage:
    """Contents of a template's page."""

    project: Project
    name: str = ""
    description: str = ""
    version: int = 0
    problems: list[Problem] = field(default_factory=list)
    field_errors: dict[str, str] = field(default_factory=dict)  # errors of the name and the description
    rejected: str = ""
    conflicting: Template | None = None  # version that another user has saved since the form was opened


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    rows = templates(request.actor)
    if chosen := request.GET.get("project", "").replace("\x00", ""):
        rows = rows.filter(project__name=chosen)
    if search := request.GET.get("search", "").replace("\x00", "").strip():
        rows = rows.filter(name__icontains=search) | rows.filter(description__icontains=search)
    mine = submittable_projects(request.actor)
    usable = set(mine)
    listing = list_query(
        request,
        COLUMNS,
        rows,
        lambda some: list(_build_template_rows(request, some, usable)),
        file_name="templates",
        default="name",
    )
    if file := requested_csv(request, listing):
        return file
    context = {
        "rows": listing.rows,
        "listing": listing,
        "projects": templates(request.actor)
        .order_by("project__name")
        .values_list("project__name", flat=True)
        .distinct(),
        "chosen": chosen,
        "unknown": "" if listing.rows else describe_unknown(unknown_project_problem(request.actor, chosen)),
        "search": search,
        "may_make": bool(mine),
    }
    return page(request, "scheduler/templates/list.html", context, inner="scheduler/templates/rows.html")


@signed_in
@require_http_methods(["GET", "POST"])
def save(request: Request) -> HttpResponse:
    """Save a document from a workload or from the submission page as a template."""
    if request.method == "GET":
        if not (like := request.GET.get("like", "")):
            return _open_editor(request)
        text, name = template_text_from_workload(request.actor, like)
        initial: dict[str, Any] = {"document": text, "name": name, "project": request.GET.get("project", "")}
        return _render_save_page(request, SaveForm(initial=initial, auto_id="keep_%s"))
    if request.POST.get("step") == "ask":
        text = template_text(request.POST.get("document", ""))
        stands = open_draft(request.POST.get("document", "")).data or {}
        initial = {"document": text}
        initial |= {key: stands.get(key) for key in ("project", "name")}
        return _render_save_page(request, SaveForm(initial=initial, auto_id="keep_%s"))
    form = SaveForm(request.POST, auto_id="keep_%s")
    form.fields["project"].choices = _project_choices(request)  # type: ignore[attr-defined]
    if form.is_valid():
        values = form.cleaned_data
        try:
            made = service.set_template(
                actor=request.actor, project=find_project(request.actor, values["project"]),
                name=values["name"], text=values["document"].replace("\r\n", "\n"),
                description=values["description"], expected_version=0,
            )  # fmt: skip
        except PreconditionFailed:
            form.add_error(
                "name", "A template with this name exists. Choose another name or edit that template"
            )
        except BerthError as error:
            add_form_errors(form, error)
        else:
            return success_response(request, f"Template {made.handle} saved.", to=reverse("templates"))
    return _render_save_page(request, form)


def _open_editor(request: Request) -> HttpResponse:
    """Open the editor for a new template. Nothing is stored until the user saves it there."""
    names = list(submittable_projects(request.actor))
    if not names:
        raise Forbidden("You cannot create templates. Ask a project admin for the member role.")
    chosen = request.GET.get("project", "")
    return open_url(request, reverse("template-new", args=[chosen if chosen in names else names[0]]))


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, project: str, name: str = "") -> HttpResponse:
    if not name:  # the project of a new template is chosen in the editor
        project = request.POST.get("project") or project
    owner = find_project(request.actor, project)
    stored = templates(request.actor).filter(project=owner, name=name).first() if name else None
    if name and stored is None:
        raise not_found_error(ObjectKind.TEMPLATE, name=name, owner=project)
    if stored is not None:
        service.require_change_permission(request.actor, stored)
    else:
        request.require("submit", owner)
    if request.method == "GET":
        description, version = (stored.description, stored.version) if stored else ("", 0)
        text = stored.text if stored else template_text("")
        return _render_page(request, open_draft(text), TemplatePage(owner, name, description, version))
    values = request.POST
    draft = read_draft(values, _form_choices(request, owner))
    template_page = TemplatePage(
        owner,
        name or values.get("name", ""),
        values.get("description", ""),
        _parse_version(values.get("version")),
    )
    form_action = values.get("step", "")
    if form_action != SAVE:
        apply_form_action(draft, form_action)
        return _render_page(request, draft, _add_document_problems(template_page, draft))
    try:
        if draft.problems:
            raise Invalid(draft.problems)
        made = service.set_template(
            actor=request.actor, project=owner, name=template_page.name, text=draft.text,
            description=template_page.description,
            expected_version=template_page.version,
        )  # fmt: skip
        return success_response(
            request, f"Template {made.handle} saved.", to=reverse("templates"), leave=True
        )
    except PreconditionFailed:
        _render_conflict(template_page)
    except BerthError as error:
        _add_error(template_page, error)
    return _render_page(request, draft, template_page, status=412 if template_page.conflicting else 422)


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, project: str, name: str) -> HttpResponse:
    owner = find_project(request.actor, project)
    stored = templates(request.actor).filter(project=owner, name=name).first()
    if stored is None:
        raise not_found_error(ObjectKind.TEMPLATE, name=name, owner=project)
    service.require_change_permission(request.actor, stored)
    if names := service.schedule_names(stored):
        return render_refusal(
            request,
            title=f"Template {stored.handle} is in use",
            text="This schedule submits workloads from it. Edit or delete the schedule first."
            if len(names) == 1
            else "These schedules submit workloads from it. Edit or delete the schedules first.",
            links=[(name, reverse("schedule", args=[project, name])) for name in names],
            back=reverse("templates"),
            status=409 if request.method == "POST" else 200,
        )
    if request.method == "POST":
        service.delete_template(actor=request.actor, template=stored)
        return success_response(request, f"Template {stored.handle} deleted.", to=reverse("templates"))
    return confirm_page(
        request,
        title=f"Delete template {stored.handle}?",
        warning="Workloads submitted from this template are not affected.",
        label="Delete template",
        back=reverse("templates"),
        danger=True,
    )


def _render_save_page(request: Request, form: SaveForm) -> HttpResponse:
    form.fields["project"].choices = _project_choices(request)  # type: ignore[attr-defined]
    faults: list[Any] = list(form.errors.get("document", [])) if form.is_bound else []
    return form_page(
        request,
        form,
        title="Save as template",
        text="; ".join(str(fault) for fault in faults),
        label="Save template",
        post_to=reverse("template-save"),
        back=reverse("templates"),
    )


def _build_template_rows(request: Request, rows: list[Template], mine: set[str]) -> Iterator[Row]:
    used_by = _schedules_by_template(request, rows)
    runs: dict[int, bool] = {}
    for row in rows:
        if row.project_id not in runs:
            runs[row.project_id] = may(request.actor, Action.OPERATE, row.project)
        usable = row.project.name in mine
        made = usable and row.made_by_id is not None and row.made_by_id == request.user.pk
        schedules = used_by.get((row.project_id, row.name), [])
        yield row, usable, runs[row.project_id] or made, describe_request(row.text), schedules


def _schedules_by_template(request: Request, rows: list[Template]) -> dict[tuple[int, str], list[str]]:
    names: dict[tuple[int, str], list[str]] = defaultdict(list)
    matching = schedules(request.actor).filter(
        project__in={row.project_id for row in rows}, template__in={row.name for row in rows}
    )
    for project, template, name in matching.values_list("project_id", "template", "name"):
        names[project, template].append(name)
    return names


def _project_choices(request: Request) -> list[tuple[str, str]]:
    return [(name, name) for name in submittable_projects(request.actor)]


def _add_document_problems(template_page: TemplatePage, draft: Draft) -> TemplatePage:
    try:
        if not draft.problems:
            service.check_document(template_page.project, draft.text)
    except Invalid as error:
        template_page.problems = list(error.problems)
    return template_page


def _render_conflict(template_page: TemplatePage) -> None:
    """Show a version conflict on the page. Saving again overwrites the stored version."""
    template_page.conflicting = Template.objects.filter(
        project=template_page.project, name=template_page.name
    ).first()
    if template_page.conflicting is None:
        template_page.rejected, template_page.version = (
            "The template was deleted while you were editing. Saving again creates it.",
            0,
        )
    else:
        template_page.version = template_page.conflicting.version


def _add_error(template_page: TemplatePage, error: BerthError) -> None:
    if not isinstance(error, Invalid):
        template_page.rejected = error.detail
        return
    inside = f"{service.DOCUMENT_PATH}."
    for problem in error.problems:
        if problem.path in ("name", "description"):
            template_page.field_errors[problem.path] = describe_problem(problem).text
        else:
            path = problem.path.removeprefix(inside) if problem.path != service.DOCUMENT_PATH else ""
            template_page.problems.append(Problem(path, problem.message, problem.received, problem.allowed))


def _render_page(
    request: Request, draft: Draft, template_page: TemplatePage, *, status: int = 200
) -> HttpResponse:
    offer = _form_choices(request, template_page.project, draft.form_data)
    context: dict[str, Any] = {
        "text": draft.text,
        "draft": draft,
        "shown": prepare_form(draft, offer, template_page.problems),
        "template_page": template_page,
        "offer": offer,
        "post_to": request.get_full_path(),
        "schedules": list(
            schedules(request.actor)
            .filter(project=template_page.project, template=template_page.name)
            .exclude(template="")
            .values_list("name", flat=True)
        ),
        "projects": list(submittable_projects(request.actor)),
        "is_new": "name" not in (request.resolver_match.kwargs if request.resolver_match else {}),
    }
    return page(
        request,
        "scheduler/templates/detail.html",
        context,
        inner="scheduler/templates/inner.html",
        status=status,
    )


def _form_choices(
    request: Request, project: Project, document: Mapping[str, Any] | None = None
) -> FormChoices:
    return replace(choices_for(request.actor, document, project=project.name), for_template=True)


def _parse_version(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
