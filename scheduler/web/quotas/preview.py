"""Preview of a quota edit beside its form."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_POST

from berth.core.errors import Invalid
from berth.server.web.faults import take_faults
from berth.server.web.pages import Request, signed_in
from pools.models import NodePool
from projects.models import Department, Project
from projects.services.quotas import columns_of, require_to_set
from projects.services.quotas.drafts import Change, Draft
from projects.web.quotas.form import FIELD_OF, QuotaForm, initial_of
from projects.web.quotas.pages import form_page, owner_named, present_quota
from scheduler.reports.what_if.quota_preview import Impact, preview

HERE = "changes[0]"


@signed_in
@require_POST
def preview_quota(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where = owner_named(request, kind, name), get_object_or_404(NodePool, name=pool)
    require_to_set(request.acting, owner)
    quota = present_quota(owner, where)
    form, impact = QuotaForm(request.POST, initial=initial_of(quota), auto_id="quota_%s"), None
    if form.is_valid():
        try:
            impact = _impact(request, owner, where, form)
        except Invalid as error:
            take_faults(form, error, {**FIELD_OF, **{f"{HERE}.set.{k}": v for k, v in FIELD_OF.items()}})
    status = 200 if impact is not None else 422
    return form_page(request, owner, where, quota, form, status=status, impact=impact)


def _impact(request: Request, owner: Department | Project, pool: NodePool, form: QuotaForm) -> Impact:
    change = Change(owner, pool, columns_of(form.values()), HERE)
    return preview(acting=request.acting, draft=Draft((change,)))
