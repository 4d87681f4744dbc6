"""Preview of a quota edit, shown next to its form."""

from django.http import HttpResponse
from django.views.decorators.http import require_POST

from berth.core.errors import Invalid
from berth.server.web.faults import add_form_errors
from berth.server.web.pages import Request, signed_in
from projects.models.tenants import PoolOrGroup, Tenant
from projects.selectors import find_owner
from projects.services.quotas import parse_columns, require_quota_permission
from projects.services.quotas.drafts import Draft, QuotaChangeDraft
from projects.web.quotas.form import FIELDS_BY_PATH, QuotaForm, initial_values
from projects.web.quotas.pages import find_quota, get_pool_or_group_or_404, render_quota_form
from scheduler.reports.what_if.quota_preview import QuotaImpact, preview_draft

CHANGE_PATH = "changes[0]"


@signed_in
@require_POST
def preview_quota(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where = find_owner(request.actor, kind, name), get_pool_or_group_or_404(pool)
    require_quota_permission(request.actor, owner)
    quota = find_quota(owner, where)
    form, impact = QuotaForm(request.POST, initial=initial_values(quota), auto_id="quota_%s"), None
    if form.is_valid():
        try:
            impact = _preview_impact(request, owner, where, form)
        except Invalid as error:
            add_form_errors(
                form,
                error,
                {**FIELDS_BY_PATH, **{f"{CHANGE_PATH}.set.{k}": v for k, v in FIELDS_BY_PATH.items()}},
            )
    status = 200 if impact is not None else 422
    return render_quota_form(request, owner, where, quota, form, status=status, impact=impact)


def _preview_impact(request: Request, owner: Tenant, pool: PoolOrGroup, form: QuotaForm) -> QuotaImpact:
    change = QuotaChangeDraft(owner, pool, parse_columns(form.values()), CHANGE_PATH)
    return preview_draft(actor=request.actor, draft=Draft((change,)))
