"""Preview of a change to a quota group's pools, shown in the group's form."""

from django.http import HttpResponse
from django.views.decorators.http import require_POST

from berth.server.web.faults import form_errors
from berth.server.web.pages import Request, signed_in
from projects.access import Action, require
from projects.selectors import find_quota_group
from projects.web.quotas.groups import chosen_pools, edit_form, render_edit_form
from scheduler.reports.what_if.group_preview import preview_group
from scheduler.web.quotas.preview_by_pool import shares_with_visible_change


@signed_in
@require_POST
def preview_pools(request: Request, name: str) -> HttpResponse:
    group = find_quota_group(request.actor, name)
    require(request.actor, Action.ADMINISTER)
    form, pools = edit_form(request, group)
    impact = None
    if form.is_valid():
        with form_errors(form):
            impact = preview_group(actor=request.actor, group=group, pools=chosen_pools(form, pools))
            impact.shares = shares_with_visible_change(impact)
    template = "scheduler/quotas/group_preview.html" if impact is not None else None
    return render_edit_form(request, group, form, impact=impact, result_template=template)
