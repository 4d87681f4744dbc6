"""Pages that set and remove a quota and show conflicts."""

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.errors import Invalid, PreconditionFailed
from berth.server.web.faults import take_faults
from berth.server.web.pages import Request, done, page, signed_in
from pools.models import NodePool
from projects.access import Action, require
from projects.models import Audit, Department, Project, Quota
from projects.selectors import find_department, find_project
from projects.services.quotas import remove_quota, set_quota
from projects.web.quotas.form import FIELD_OF, QuotaForm, differing, initial_of, merged


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where = owner_named(request, kind, name), get_object_or_404(NodePool, name=pool)
    _require_permission(request, owner)
    quota = present_quota(owner, where)
    if request.method == "GET":
        form = QuotaForm(initial=initial_of(quota), auto_id="quota_%s")
        return form_page(request, owner, where, quota, form)
    form = QuotaForm(request.POST, initial=initial_of(quota), auto_id="quota_%s")
    if form.is_valid():
        try:
            set_quota(
                acting=request.acting,
                owner=owner,
                pool=where,
                values=form.values(),
                expected_version=form.cleaned_data["version"],
            )
        except Invalid as error:
            take_faults(form, error, FIELD_OF)
        except PreconditionFailed:
            return _show_conflict(request, owner, where, form)
        else:
            return done(request, f"Quota of {owner} on {where} saved.", to=_tree(where))
    return form_page(request, owner, where, quota, form, status=422)


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, kind: str, name: str, pool: str) -> HttpResponse:
    owner, where = owner_named(request, kind, name), get_object_or_404(NodePool, name=pool)
    _require_permission(request, owner)
    quota = present_quota(owner, where)
    if quota is None:
        raise Http404
    if request.method == "POST":
        remove_quota(acting=request.acting, quota=quota)
        return done(request, f"Quota of {owner} on {where} deleted.", to=_tree(where))
    context = {
        "title": f"Delete the quota of {owner} on {where}?",
        "warning": "All its workloads are then over quota and can be reclaimed by other queues.",
        "label": "Delete quota",
        "post_to": request.path,
        "back": _tree(where),
        "danger": True,
    }
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html")


def form_page(
    request: Request,
    owner: Department | Project,
    pool: NodePool,
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
        "back": _tree(pool),
        **more,
    }
    return page(
        request, "projects/quotas/page.html", context, inner="projects/quotas/form.html", status=status
    )


def _show_conflict(
    request: Request, owner: Department | Project, pool: NodePool, form: QuotaForm
) -> HttpResponse:
    """Show the form again after a concurrent change, with entered values on top of the stored values."""
    quota = present_quota(owner, pool)
    again = merged(form, quota)
    stored = Audit.objects.filter(object_type="quota", object_id=str(quota.pk)) if quota is not None else None
    more = {
        "change": stored.first() if stored is not None else None,
        "differing": list(differing(again)),
        "overtaken": True,
    }
    return form_page(request, owner, pool, quota, again, status=412, **more)


def _require_permission(request: Request, owner: Department | Project) -> None:
    """Raise NotFound or Forbidden unless the user may set the quota. Departments require a platform admin."""
    require(request.acting, Action.SET_QUOTA, owner)
    if isinstance(owner, Department):
        require(request.acting, Action.ADMINISTER)


def owner_named(request: Request, kind: str, name: str) -> Department | Project:
    return (
        find_department(request.acting, name) if kind == "departments" else find_project(request.acting, name)
    )


def present_quota(owner: Department | Project, pool: NodePool) -> Quota | None:
    place = {"department": owner} if isinstance(owner, Department) else {"project": owner}
    return Quota.objects.filter(pool=pool, **place).first()


def _tree(pool: NodePool) -> str:
    return f"{reverse('quotas')}?pool={pool.name}"
