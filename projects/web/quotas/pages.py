"""Pages that set and delete a quota."""

from django.http import Http404, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.errors import Invalid, PreconditionFailed
from berth.server.web.faults import add_form_errors
from berth.server.web.pages import Request, confirm_page, page, signed_in, success_response
from projects.models import Audit, Quota
from projects.models.tenants import PoolOrGroup, Tenant, owner_columns, pool_or_group_columns
from projects.selectors import find_owner
from projects.services.quotas import remove_quota, require_quota_permission, set_quota
from projects.services.quotas.places import find_pool_or_group
from projects.web.quotas.form import FIELDS_BY_PATH, QuotaForm, initial_values, list_differences, merge_stored


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, node_pool = find_owner(request.actor, kind, name), get_pool_or_group_or_404(pool)
    require_quota_permission(request.actor, owner)
    quota = find_quota(owner, node_pool)
    if request.method == "GET":
        form = QuotaForm(initial=initial_values(quota), auto_id="quota_%s")
        if (field := request.GET.get("field", "")) in form.fields:
            form.fields[field].widget.attrs["autofocus"] = True
        return render_quota_form(request, owner, node_pool, quota, form)
    form = QuotaForm(request.POST, initial=initial_values(quota), auto_id="quota_%s")
    if form.is_valid():
        try:
            set_quota(
                actor=request.actor,
                owner=owner,
                pool=node_pool,
                values=form.values(),
                expected_version=form.cleaned_data["version"],
            )
        except Invalid as error:
            add_form_errors(form, error, FIELDS_BY_PATH)
        except PreconditionFailed:
            return _render_conflict(request, owner, node_pool, form)
        else:
            return success_response(
                request, f"Quota of {owner} in {node_pool.kind_and_name} saved.", to=_quotas_url(node_pool)
            )
    return render_quota_form(request, owner, node_pool, quota, form, status=422)


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, node_pool = find_owner(request.actor, kind, name), get_pool_or_group_or_404(pool)
    require_quota_permission(request.actor, owner)
    quota = find_quota(owner, node_pool)
    if quota is None:
        raise Http404
    if request.method == "POST":
        remove_quota(actor=request.actor, quota=quota)
        return success_response(
            request, f"Quota of {owner} in {node_pool.kind_and_name} deleted.", to=_quotas_url(node_pool)
        )
    return confirm_page(
        request,
        title=f"Delete the quota of {owner} in {node_pool.kind_and_name}?",
        warning="The owner's workloads will then all be over quota, so other queues can reclaim them.",
        label="Delete quota",
        back=_quotas_url(node_pool),
        danger=True,
    )


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
    """Show the form again after a conflicting change, with the entered values and the differences."""
    quota = find_quota(owner, pool)
    merged_form = merge_stored(form, quota)
    audit_rows = (
        Audit.objects.filter(object_type="quota", object_id=str(quota.pk)) if quota is not None else None
    )
    more = {
        "change": audit_rows.first() if audit_rows is not None else None,
        "differing": list(list_differences(merged_form)),
        "overtaken": True,
    }
    return render_quota_form(request, owner, pool, quota, merged_form, status=412, **more)


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
