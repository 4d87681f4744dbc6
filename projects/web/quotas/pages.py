"""Pages that set and delete a quota."""

from django.http import Http404, HttpResponse
from django.urls import reverse

from berth.core.errors import Invalid, PreconditionFailed
from berth.server.web.faults import add_form_errors
from berth.server.web.pages import Request, page, success_response
from berth.server.web.zones import user_time_zone
from projects.models import Audit, Quota
from projects.models.tenants import PoolOrGroup, Tenant, owner_columns, pool_or_group_columns
from projects.services.quotas import remove_quota
from projects.services.quotas.drafts import NO_VERSION, apply_draft
from projects.services.quotas.pools_and_groups import find_pool_or_group
from projects.web.quotas.form import (
    DRAFT_FIELDS_BY_PATH,
    QuotaForm,
    initial_values,
    list_differences,
    merge_stored_values,
)


def edit(request: Request, owner: Tenant, node_pool: PoolOrGroup, quota: Quota | None) -> HttpResponse:
    """Show the form for a quota, or save it."""
    if request.method == "GET":
        form = QuotaForm(initial=initial_values(quota), auto_id="quota_%s")
        if (field := request.GET.get("field", "")) in form.fields:
            form.fields[field].widget.attrs["autofocus"] = True
        return render_quota_form(request, owner, node_pool, quota, form)
    form = QuotaForm(request.POST, initial=initial_values(quota), auto_id="quota_%s")
    if form.is_valid():
        try:
            draft = form.build_draft(owner, node_pool, user_time_zone(request))
            change, _ = apply_draft(actor=request.actor, draft=draft, expected=_expected_etag(quota, form))
        except Invalid as error:
            add_form_errors(form, error, DRAFT_FIELDS_BY_PATH)
        except PreconditionFailed:
            return _render_conflict(request, owner, node_pool, form)
        else:
            if change is None and draft.expires_at is not None:
                form.add_error("until", "Change a value too: an expiry restores the earlier values.")
                return render_quota_form(request, owner, node_pool, quota, form, status=422)
            outcome = "saved" if change is not None else "has not changed"
            message = f"Quota of {owner} in {node_pool.kind_and_name} {outcome}."
            return success_response(request, message, to=_quotas_url(node_pool))
    return render_quota_form(request, owner, node_pool, quota, form, status=422)


def delete(request: Request, owner: Tenant, pool: PoolOrGroup, quota: Quota) -> HttpResponse:
    """Delete the quota, unless it has changed since the user was asked for confirmation."""
    version = request.POST.get("version", "")
    expected = int(version) if version.isdecimal() and len(version) < 18 else None
    remove_quota(actor=request.actor, quota=quota, expected_version=expected)
    message = f"Quota of {owner} in {pool.kind_and_name} deleted."
    return success_response(request, message, to=_quotas_url(pool))


def render_quota_form(
    request: Request,
    owner: Tenant,
    pool: PoolOrGroup,
    quota: Quota | None,
    form: QuotaForm,
    *,
    status: int = 200,
    **more: object,
) -> HttpResponse:
    form["until"].label = f"Expires ({user_time_zone(request).key})"
    context = {
        "owner": owner,
        "kind": owner._meta.model_name,
        "pool": pool,
        "quota": quota,
        "form": form,
        "post_to": reverse("quota", args=[f"{owner._meta.model_name}s", owner.name, pool.name]),
        "back": _quotas_url(pool),
        **more,
    }
    return page(
        request, "projects/quotas/page.html", context, inner="projects/quotas/form.html", status=status
    )


def _render_conflict(request: Request, owner: Tenant, pool: PoolOrGroup, form: QuotaForm) -> HttpResponse:
    quota = find_quota(owner, pool)
    merged_form = merge_stored_values(form, quota)
    audit_rows = (
        Audit.objects.filter(object_type="quota", object_id=str(quota.pk)) if quota is not None else None
    )
    more = {
        "change": audit_rows.first() if audit_rows is not None else None,
        "differing": list(list_differences(merged_form)),
        "overtaken": True,
    }
    return render_quota_form(request, owner, pool, quota, merged_form, status=412, **more)


def _expected_etag(quota: Quota | None, form: QuotaForm) -> str:
    """Return the ETag of the quota version that the form was opened with."""
    version = form.cleaned_data["version"]
    return f"{quota.pk if quota is not None else 0}.{version}" if version else NO_VERSION


def find_quota(owner: Tenant, pool: PoolOrGroup) -> Quota | None:
    return Quota.objects.filter(**pool_or_group_columns(pool), **owner_columns(owner)).first()


def get_pool_or_group_or_404(name: str) -> PoolOrGroup:
    """Return the pool or quota group with the given name. Raises Http404 if there is none."""
    place = find_pool_or_group(name)
    if place is None:
        raise Http404
    return place


def _quotas_url(pool: PoolOrGroup) -> str:
    return f"{reverse('quotas')}?pool={pool.name}"
