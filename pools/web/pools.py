"""Pages that create, edit, scale and pause pools."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError
from berth.core.words import counted
from berth.server.web.faults import take_faults
from berth.server.web.pages import Request, done, page, signed_in
from pools import services
from pools.models import NodePool
from pools.scale_down import NodeToDrain, draining
from pools.web.forms import PoolForm, ScaleForm, SettingsForm, initial_of

NAMED_MAX = 20
FIELDS = {"cpu_milli": "cpu", "nodes": "nodes_max", "min": "nodes_min", "max": "nodes_max"}
RETRY = (
    "Provisioning starts again at once, and the count of failed boots is reset. Fix the cause first: "
    "machines that do not boot cost money."
)
PAUSES = {
    "pause": (
        services.pause_pool,
        "The pool neither grows nor shrinks until it is resumed. Running pods continue.",
        "is paused",
    ),
    "resume": (services.resume_pool, "The pool scales with demand again.", "is resumed"),
    "retry": (services.retry_pool, RETRY, "provisions nodes again"),
}


@signed_in
@require_http_methods(["GET", "POST"])
def create(request: Request) -> HttpResponse:
    request.require("administer")
    form = PoolForm(request.POST or None, auto_id="pool_%s")
    if request.method == "POST" and form.is_valid():
        try:
            pool = services.create_pool(
                acting=request.acting, name=form.cleaned_data["name"], **form.values()
            )
        except BerthError as error:
            take_faults(form, error, FIELDS)
        else:
            return done(request, f"Pool {pool} created. Assign department quotas on it next.", to=_list())
    return _form(request, form, title="New node pool", label="Create pool", back=_list())


@signed_in
@require_http_methods(["GET", "POST"])
def settings(request: Request, name: str) -> HttpResponse:
    pool = _pool(request, name)
    form = SettingsForm(request.POST or None, initial=initial_of(pool), auto_id="pool_%s")
    form.note_secrets(pool)
    if request.method == "POST" and form.is_valid():
        changes = form.values()
        try:
            edited = services.preview_edit(pool, changes)
            going = (
                draining(edited, edited.nodes_desired, timezone.now())
                if edited.nodes_desired < pool.nodes_desired
                else ()
            )
            if going and form.cleaned_data["confirmed"] != edited.nodes_desired:
                return _confirm_drains(request, form, edited, going)
            services.edit_pool(
                acting=request.acting, pool=pool, changes=changes, version=form.cleaned_data["version"]
            )
        except BerthError as error:
            take_faults(form, error, FIELDS)
        else:
            return done(request, f"Settings of {pool} saved.{_draining_text(going)}", to=_detail(pool))
    return _form(request, form, title=f"Settings of {pool}", label="Save settings", back=_detail(pool))


@signed_in
@require_http_methods(["GET", "POST"])
def scale(request: Request, name: str) -> HttpResponse:
    pool = _pool(request, name)
    initial = {"nodes_desired": pool.nodes_desired, "version": pool.version}
    form = ScaleForm(request.POST or None, initial=initial, auto_id="scale_%s")
    text = "The autoscaler continues from this size after its cooldown. Pause the pool to keep the size."
    if request.method == "POST" and form.is_valid():
        cleaned = form.cleaned_data
        try:
            services.check_nodes_desired(pool, cleaned["nodes_desired"])
            going = draining(pool, cleaned["nodes_desired"], timezone.now())
            if going and cleaned["confirmed"] != cleaned["nodes_desired"]:
                again = ScaleForm(
                    initial={**cleaned, "confirmed": cleaned["nodes_desired"]}, auto_id="scale_%s"
                )
                title = f"Scale {pool} to {counted(cleaned['nodes_desired'], 'node')}?"
                return _form(
                    request, again, title=title, label="Drain nodes", back=_detail(pool), text=text,
                    names="Nodes to drain, with their current workloads", work=going[:NAMED_MAX],
                    more=max(0, len(going) - NAMED_MAX),
                )  # fmt: skip
            services.set_nodes_desired(
                acting=request.acting,
                pool=pool,
                nodes_desired=cleaned["nodes_desired"],
                version=cleaned["version"],
            )
        except BerthError as error:
            take_faults(form, error)
        else:
            return done(
                request,
                f"{pool} scales to {counted(cleaned['nodes_desired'], 'node')}.{_draining_text(going)}",
                to=_detail(pool),
            )
    return _form(request, form, title=f"Scale {pool}", label="Scale pool", back=_detail(pool), text=text)


@signed_in
@require_http_methods(["GET", "POST"])
def pause(request: Request, name: str, step: str) -> HttpResponse:
    pool = _pool(request, name)
    change, warning, past = PAUSES[step]
    if request.method == "POST":
        change(acting=request.acting, pool=pool)
        return done(request, f"{pool} {past}.", to=_detail(pool))
    context = {
        "title": f"{step.capitalize()} {pool}?",
        "warning": warning,
        "label": step.capitalize(),
        "post_to": request.path,
        "back": _detail(pool),
    }
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html")


def _confirm_drains(
    request: Request, form: SettingsForm, edited: NodePool, going: Sequence[NodeToDrain]
) -> HttpResponse:
    """Show the filled-in form again with the nodes that it would drain, for confirmation."""
    data = request.POST.copy()
    data["confirmed"] = str(edited.nodes_desired)
    again = SettingsForm(data, auto_id="pool_%s")
    again.keep_secrets()
    return _form(
        request, again, title=f"Reduce {edited} to {counted(edited.nodes_desired, 'node')}?",
        label="Save and drain nodes", back=_detail(edited),
        names="Nodes to drain, with their current workloads", work=going[:NAMED_MAX],
        more=max(0, len(going) - NAMED_MAX),
    )  # fmt: skip


def _draining_text(going: Sequence[NodeToDrain]) -> str:
    if not going:
        return ""
    more = f" and {len(going) - NAMED_MAX} more" if len(going) > NAMED_MAX else ""
    return f" Draining: {', '.join(each.node.name for each in going[:NAMED_MAX])}{more}."


def _pool(request: Request, name: str) -> NodePool:
    pool = get_object_or_404(NodePool, name=name)
    request.require("edit", pool)
    return pool


def _form(
    request: Request, form: forms.Form, *, title: str, label: str, back: str, text: str = "", **more: Any
) -> HttpResponse:
    context = {
        "form": form,
        "title": title,
        "label": label,
        "text": text,
        "post_to": request.path,
        "back": back,
        **more,
    }
    status = 422 if form.is_bound and form.errors else 200
    return page(request, "web/form.html", context, inner="web/form_body.html", status=status)


def _list() -> str:
    return reverse("node-pools")


def _detail(pool: NodePool) -> str:
    return reverse("node-pool", args=[pool.name])
