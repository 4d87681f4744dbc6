"""Preview of a quota edit next to its form, and confirmation before a quota is saved or deleted."""

from typing import Any

from django.http import Http404, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from berth.core.errors import Invalid
from berth.server.web.faults import add_form_errors
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from projects.models import Quota
from projects.models.tenants import PoolOrGroup, Tenant
from projects.selectors import find_owner
from projects.services.quotas import require_quota_permission
from projects.services.quotas.drafts import Draft, QuotaChangeDraft
from projects.web.quotas import pages
from projects.web.quotas.form import DRAFT_FIELDS_BY_PATH, EDIT_PATH, QuotaForm, initial_values
from projects.web.quotas.pages import find_quota, get_pool_or_group_or_404, render_quota_form
from scheduler.reports.what_if.quota_preview import QuotaImpact, preview_draft
from scheduler.web.quotas.confirmation import Consequences, find_consequences
from scheduler.web.quotas.preview_by_pool import shares_with_visible_change

DELETION_NOTE = "The owner's workloads will then all be over quota, so other queues can reclaim them."


@signed_in
@require_POST
def preview_quota(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where, quota = _find_owner_and_quota(request, kind, name, pool)
    form, impact = _quota_form(request, quota), None
    if form.is_valid():
        try:
            impact = _compute_impact(request, owner, where, form)
        except Invalid as error:
            add_form_errors(form, error, DRAFT_FIELDS_BY_PATH)
        else:
            impact.shares = shares_with_visible_change(impact)
    status = 200 if impact is not None else 422
    return render_quota_form(request, owner, where, quota, form, status=status, impact=impact)


@signed_in
@require_http_methods(["GET", "POST"])
def edit_quota(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    """Show and save the form.

    If saving would evict workloads, ask the user first. `confirmed` is the quota version for which the user
    has confirmed the evictions.
    """
    owner, where, quota = _find_owner_and_quota(request, kind, name, pool)
    is_confirmed = request.POST.get("confirmed") == request.POST.get("version")
    if (
        request.method == "POST"
        and not is_confirmed
        and (consequences := _save_consequences(request, owner, where, quota))
    ):
        sent = [(key, value) for key, value in request.POST.items() if key != "csrfmiddlewaretoken"]
        fields = [*sent, ("confirmed", request.POST["version"])]
        return _render_confirmation(request, consequences, where, label="Save quota", fields=fields)
    return pages.edit(request, owner, where, quota)


@signed_in
@require_http_methods(["GET", "POST"])
def delete_quota(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    """Ask for confirmation, listing the workloads that would be evicted (GET), or delete the quota (POST)."""
    owner, where, quota = _find_owner_and_quota(request, kind, name, pool)
    if quota is None:
        raise Http404
    if request.method == "POST":
        return pages.delete(request, owner, where, quota)
    draft = Draft((QuotaChangeDraft(owner, where, None, EDIT_PATH),))
    consequences = find_consequences(preview_draft(actor=request.actor, draft=draft))
    assert consequences is not None, "the deletion is a consequence"
    return _render_confirmation(
        request, consequences, where,
        title=f"Delete the quota of {owner} in {where.kind_and_name}?",
        note=DELETION_NOTE, label="Delete quota", fields=[("version", quota.version)],
    )  # fmt: skip


def _save_consequences(
    request: Request, owner: Tenant, pool: PoolOrGroup, quota: Quota | None
) -> Consequences | None:
    form = _quota_form(request, quota)
    if not form.is_valid() or form.cleaned_data["version"] != (quota.version if quota else 0):
        return None
    try:
        return find_consequences(_compute_impact(request, owner, pool, form))
    except Invalid:
        return None


def _find_owner_and_quota(
    request: Request, kind: str, name: str, pool: str
) -> tuple[Tenant, PoolOrGroup, Quota | None]:
    """Return the owner, the pool or quota group, and the stored quota.

    Raises Forbidden if the user may not set the owner's quotas.
    """
    owner, where = find_owner(request.actor, kind, name), get_pool_or_group_or_404(pool)
    require_quota_permission(request.actor, owner)
    return owner, where, find_quota(owner, where)


def _quota_form(request: Request, quota: Quota | None) -> QuotaForm:
    return QuotaForm(request.POST, initial=initial_values(quota), auto_id="quota_%s")


def _compute_impact(request: Request, owner: Tenant, pool: PoolOrGroup, form: QuotaForm) -> QuotaImpact:
    draft = form.build_draft(owner, pool, user_time_zone(request))
    return preview_draft(actor=request.actor, draft=draft)


def _render_confirmation(
    request: Request, consequences: Consequences, pool: PoolOrGroup, **more: Any
) -> HttpResponse:
    """Ask for confirmation in the page's dialog or, if scripts are disabled, on a separate page."""
    context = {
        "ask": consequences, "post_to": request.path, "back": f"{reverse('quotas')}?pool={pool.name}", **more,
    }  # fmt: skip
    response = page(
        request, "scheduler/quotas/confirm.html", context, inner="scheduler/quotas/confirm_form.html"
    )
    response["HX-Retarget"], response["HX-Reswap"] = "#dialog", "innerHTML"
    return response
