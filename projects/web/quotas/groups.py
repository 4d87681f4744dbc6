"""Forms that create, edit and delete quota groups."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, confirm_page, form_page, signed_in, success_response
from pools.models import NodePool, QuotaGroup
from projects.access import Action, require, visible_pools
from projects.selectors import find_quota_group
from projects.services.quotas import groups

POOLS_HELP = "Pools with the same GPU model. A pool belongs to at most one group."


class GroupForm(Form):
    name = forms.CharField(label="Name", max_length=40, help_text="Lowercase letters, digits and hyphens.")
    pools = forms.MultipleChoiceField(
        label="Pools", widget=forms.CheckboxSelectMultiple, help_text=POOLS_HELP
    )
    version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, pools: Iterable[NodePool], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["pools"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(pool.name, f"{pool.name} ({pool.gpu_model or 'any model'})") for pool in pools]


class PoolsForm(GroupForm):
    """Form for the pools of an existing group."""

    name = None  # type: ignore[assignment]


@signed_in
@require_http_methods(["GET", "POST"])
def add(request: Request) -> HttpResponse:
    require(request.actor, Action.ADMINISTER)
    pools = list(visible_pools(request.actor).filter(quota_group=None).order_by("name"))
    form = GroupForm(request.POST or None, pools=pools, auto_id="group_%s")
    if request.method == "POST" and form.is_valid():
        with form_errors(form):
            group = groups.create_group(
                actor=request.actor, name=form.cleaned_data["name"], pools=chosen_pools(form, pools)
            )
            message = f"Quota group {group.name} created. Set its quotas next."
            return success_response(request, message, to=_group_url(group.name), leave=True)
    text = "A group's quota counts across all of its pools."
    return form_page(
        request,
        form,
        title="Create quota group",
        label="Create quota group",
        back=reverse("quotas"),
        text=text,
    )


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, name: str) -> HttpResponse:
    group = find_quota_group(request.actor, name)
    require(request.actor, Action.ADMINISTER)
    form, pools = edit_form(request, group)
    if request.method == "POST" and form.is_valid():
        with form_errors(form):
            groups.edit_group(
                actor=request.actor,
                group=group,
                pools=chosen_pools(form, pools),
                expected_version=form.cleaned_data["version"],
            )
            return success_response(request, f"Pools of {name} saved.", to=_group_url(name), leave=True)
    return render_edit_form(request, group, form)


def edit_form(request: Request, group: QuotaGroup) -> tuple[PoolsForm, list[NodePool]]:
    """Return the form for the group's pools, and the pools that the form offers."""
    pools = [
        pool
        for pool in visible_pools(request.actor).order_by("name")
        if pool.quota_group_id in (None, group.pk)
    ]
    initial = {"pools": [pool.name for pool in pools if pool.quota_group_id], "version": group.version}
    return PoolsForm(request.POST or None, pools=pools, initial=initial, auto_id="group_%s"), pools


def render_edit_form(request: Request, group: QuotaGroup, form: PoolsForm, **more: Any) -> HttpResponse:
    return form_page(
        request,
        form,
        title=f"Pools of quota group {group.name}",
        label="Save pools",
        back=_group_url(group.name),
        text="The new pools count from the next scheduling cycle on, also for running workloads.",
        post_to=reverse("quota-group-edit", args=[group.name]),
        preview_to=reverse("quota-group-preview", args=[group.name]),
        **more,
    )


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, name: str) -> HttpResponse:
    group = find_quota_group(request.actor, name)
    require(request.actor, Action.ADMINISTER)
    if request.method == "POST":
        groups.delete_group(actor=request.actor, group=group)
        return success_response(request, f"Quota group {name} deleted.", to=reverse("quotas"), leave=True)
    return confirm_page(
        request,
        title=f"Delete quota group {name}?",
        warning="Only a group without quotas can be deleted. Its pools are kept.",
        label="Delete quota group",
        back=_group_url(name),
        danger=True,
    )


def chosen_pools(form: GroupForm, pools: Iterable[NodePool]) -> list[NodePool]:
    return [pool for pool in pools if pool.name in form.cleaned_data["pools"]]


def _group_url(name: str) -> str:
    return f"{reverse('quotas')}?{urlencode({'pool': name})}"
