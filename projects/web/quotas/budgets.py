"""Pages that set and delete monthly budgets."""

from collections.abc import Callable, Iterator
from typing import Any, cast

from django import forms
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError, PreconditionFailed
from berth.server.web.faults import add_form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, confirm_page, form_page, signed_in, success_response
from projects.access import Action, administered_departments, may, require
from projects.actor import Actor
from projects.models import Budget, Department
from projects.models.budgets import MAX_HOURS, default_warnings
from projects.models.tenants import Tenant, owner_columns
from projects.selectors import budgets, departments, find_owner, projects
from projects.services.quotas import require_quota_permission
from projects.services.quotas.budgets import delete_budget, set_budget

CONFLICT_MESSAGE = (
    "Someone else changed this budget while you were editing. The form shows the stored values."
)


class BudgetForm(Form):
    gpu_hours = forms.IntegerField(
        label="GPU-hours per month",
        min_value=1,
        max_value=MAX_HOURS,
        widget=forms.NumberInput(attrs={"class": "short", "step": "1"}),
    )
    warn_at = forms.CharField(
        label="Alert thresholds (%)",
        required=False,
        widget=forms.TextInput(attrs={"class": "short", "inputmode": "numeric"}),
        help_text="Whole percentages, for example 80, 100. Leave empty for no alerts.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput)

    def clean_warn_at(self) -> list[int]:
        text = self.cleaned_data["warn_at"]
        try:
            return [int(part) for part in text.replace("%", "").split(",") if part.strip()]
        except ValueError:
            raise forms.ValidationError(
                "Enter whole percentages separated by commas, for example 80, 100."
            ) from None


class NewBudgetForm(BudgetForm):
    owner = forms.ChoiceField(label="Owner", help_text="A department's budget includes all of its projects.")
    field_order = ("owner", "gpu_hours", "warn_at", "version")


@signed_in
@require_http_methods(["GET", "POST"])
def add(request: Request) -> HttpResponse:
    owners = {
        f"{owner._meta.model_name}s/{owner.name}": owner for owner in editable_budget_owners(request.actor)
    }
    if not owners:
        require(request.actor, Action.ADMINISTER)
    form = NewBudgetForm(request.POST or None, initial=_initial_values(None), auto_id="budget_%s")
    cast("forms.ChoiceField", form.fields["owner"]).choices = [
        (key, f"{owner.name} ({owner._meta.verbose_name})") for key, owner in owners.items()
    ]
    if request.method == "POST" and form.is_valid():
        owner = owners[form.cleaned_data["owner"]]
        try:
            set_budget(actor=request.actor, owner=owner, values=_budget_values(form), expected_version=0)
        except PreconditionFailed:
            form.add_error("owner", f"{owner.name} already has a budget. Edit that budget instead")
        except BerthError as error:
            add_form_errors(form, error)
        else:
            return success_response(request, f"Budget for {owner} saved.", to=reverse("usage"))
    return _form_response(request, form, "Create budget", "Create budget")


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, kind: str, name: str) -> HttpResponse:
    owner = find_owner(request.actor, kind, name)
    require_quota_permission(request.actor, owner)
    initial = _initial_values(_find_budget(request.actor, owner))
    form = BudgetForm(request.POST or None, initial=initial, auto_id="budget_%s")
    if request.method == "POST" and form.is_valid():
        expected = form.cleaned_data["version"]
        try:
            set_budget(
                actor=request.actor, owner=owner, values=_budget_values(form), expected_version=expected
            )
        except PreconditionFailed:
            stored_budget = _find_budget(request.actor, owner)
            form = BudgetForm(initial=_initial_values(stored_budget), auto_id="budget_%s")
            return _form_response(
                request, form, f"Budget for {owner}", "Save budget", text=CONFLICT_MESSAGE, status=412
            )
        except BerthError as error:
            add_form_errors(form, error)
        else:
            return success_response(request, f"Budget for {owner} saved.", to=reverse("usage"))
    return _form_response(request, form, f"Budget for {owner}", "Save budget")


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, kind: str, name: str) -> HttpResponse:
    owner = find_owner(request.actor, kind, name)
    require_quota_permission(request.actor, owner)
    budget = _find_budget(request.actor, owner)
    if budget is None:
        raise Http404
    if request.method == "POST":
        delete_budget(actor=request.actor, budget=budget)
        return success_response(request, f"Budget for {owner} deleted.", to=reverse("usage"))
    return confirm_page(
        request,
        title=f"Delete the budget for {owner}?",
        warning="Budget alerts stop. Usage history is kept.",
        label="Delete budget",
        back=reverse("usage"),
        danger=True,
    )


def editable_budget_owners(actor: Actor) -> Iterator[Tenant]:
    """Yield the departments and projects whose budgets the user may set."""
    if may(actor, Action.ADMINISTER):
        yield from departments(actor)
    yield from projects(actor).filter(department__in=administered_departments(actor))


def budget_permission_check(actor: Actor) -> Callable[[Tenant], bool]:
    """Return a function that checks whether the user may set an owner's budget."""
    is_admin = may(actor, Action.ADMINISTER)
    administered = set(administered_departments(actor).values_list("pk", flat=True))
    return lambda owner: is_admin if isinstance(owner, Department) else owner.department_id in administered


def _find_budget(actor: Actor, owner: Tenant) -> Budget | None:
    return budgets(actor).filter(**owner_columns(owner)).first()


def _initial_values(budget: Budget | None) -> dict[str, Any]:
    percents = default_warnings() if budget is None else budget.warn_at
    return {
        "gpu_hours": None if budget is None else budget.gpu_hours,
        "warn_at": ", ".join(map(str, percents)),
        "version": 0 if budget is None else budget.version,
    }


def _budget_values(form: BudgetForm) -> dict[str, Any]:
    return {key: form.cleaned_data[key] for key in ("gpu_hours", "warn_at")}


def _form_response(
    request: Request, form: BudgetForm, title: str, label: str, *, text: str = "", status: int | None = None
) -> HttpResponse:
    return form_page(
        request,
        form,
        title=title,
        label=label,
        text=text or "Budgets send alerts. They do not block workloads; quotas and limits do.",
        back=reverse("usage"),
        status=status or (422 if form.errors else 200),
    )
