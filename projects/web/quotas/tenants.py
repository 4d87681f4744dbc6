"""Pages that create, change and delete departments and projects."""

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, confirm_page, form_page, signed_in, success_response
from pools.web.duration_field import DurationField
from pools.web.idle_rule_field import IdleRuleField
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Department
from projects.models.tenants import Tenant
from projects.selectors import find_department, find_owner
from projects.services import tenants
from projects.web.quotas.min_runtimes import MIN_RUNTIMES, set_min_runtime_help

OVERRIDDEN_RANK = "Used in pools whose quota has no rank of its own."


class TenantForm(Form):
    name = forms.CharField(label="Name", max_length=63, help_text="Lowercase letters, digits and hyphens.")
    title = forms.CharField(label="Title", max_length=200, required=False)
    rank = forms.IntegerField(
        label="Rank",
        initial=0,
        help_text=f"From -1000 to 1000. Higher ranks are served first. {OVERRIDDEN_RANK}",
    )


class ChangeForm(Form):
    title = forms.CharField(label="Title", max_length=200, required=False)
    rank = forms.IntegerField(
        label="Rank", help_text=f"From -1000 to 1000. Higher ranks are served first. {OVERRIDDEN_RANK}"
    )
    reclaim_min_runtime = DurationField(label="Reclaim minimum runtime", required=False)
    preempt_min_runtime = DurationField(label="Preemption minimum runtime", required=False)


class ProjectForm(ChangeForm):
    """Form for a project. Only platform admins can change its idle rule."""

    idle_rule = IdleRuleField(
        help_text="Replaces the pools' rules, for example below=5%,after=1h,action=suspend,grace=30m. "
        "To exempt the project, enter action=none. Leave empty to use the pools' rules."
    )


@signed_in
@require_http_methods(["GET", "POST"])
def add_department(request: Request) -> HttpResponse:
    require(request.actor, Action.ADMINISTER)
    form = TenantForm(request.POST or None, auto_id="tenant_%s")
    if request.method == "POST" and form.is_valid():
        with form_errors(form):
            new_tenant = tenants.create_department(actor=request.actor, **form.cleaned_data)
            # Reload the page for the first department, because the page has no grid yet to show the new row.
            is_first = not Department.objects.exclude(pk=new_tenant.pk).exists()
            message = f"Department {new_tenant} created. Set its quota next."
            return success_response(request, message, to=reverse("quotas"), leave=is_first)
    return _form_response(request, form, "Create department", "Create department")


@signed_in
@require_http_methods(["GET", "POST"])
def add_project(request: Request, name: str) -> HttpResponse:
    department = find_department(request.actor, name)
    require(request.actor, Action.EDIT, department)
    form = TenantForm(request.POST or None, auto_id="tenant_%s")
    if request.method == "POST" and form.is_valid():
        with form_errors(form):
            new_tenant = tenants.create_project(
                actor=request.actor, department=department, **form.cleaned_data
            )
            return success_response(
                request, f"Project {new_tenant} created. Set its quota next.", to=reverse("quotas")
            )
    return _form_response(request, form, f"Create project in {department}", "Create project")


@signed_in
@require_http_methods(["GET", "POST"])
def change(request: Request, kind: str, name: str) -> HttpResponse:
    tenant = find_owner(request.actor, kind, name)
    require(request.actor, Action.EDIT, tenant)
    is_department = isinstance(tenant, Department)
    fields = tenants.EDITABLE if is_department else tenants.PROJECT_EDITABLE
    initial = {field: getattr(tenant, field) for field in fields}
    form_class = ChangeForm if is_department else ProjectForm
    form = form_class(request.POST or None, initial=initial, auto_id="tenant_%s")
    for field in MIN_RUNTIMES:
        set_min_runtime_help(form.fields[field], field, tenant)
    if request.method == "POST" and form.is_valid():
        changes = {key: value for key, value in form.cleaned_data.items() if value != initial[key]}
        with form_errors(form):
            _edit_tenant(request.actor, tenant, changes)
            return success_response(request, f"Settings for {tenant} saved.", to=reverse("quotas"))
    return _form_response(request, form, f"Settings for {tenant}", "Save settings")


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, kind: str, name: str) -> HttpResponse:
    tenant = find_owner(request.actor, kind, name)
    require(request.actor, Action.EDIT, tenant)
    if request.method == "POST":
        if isinstance(tenant, Department):
            tenants.delete_department(actor=request.actor, department=tenant)
        else:
            tenants.delete_project(actor=request.actor, project=tenant)
        return success_response(request, f"{tenant} deleted.", to=reverse("quotas"))
    return confirm_page(
        request,
        title=f"Delete {tenant}?",
        warning="All quotas and role assignments are deleted too. History is kept.",
        label=f"Delete {tenant._meta.verbose_name}",
        danger=True,
        back=reverse("quotas"),
    )


def _edit_tenant(actor: Actor, tenant: Tenant, changes: dict[str, object]) -> None:
    if isinstance(tenant, Department):
        tenants.edit_department(actor=actor, department=tenant, changes=changes)
    else:
        tenants.edit_project(actor=actor, project=tenant, changes=changes)


def _form_response(request: Request, form: forms.Form, title: str, label: str) -> HttpResponse:
    return form_page(request, form, title=title, label=label, back=reverse("quotas"))
