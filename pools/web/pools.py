"""Pages that create, edit, scale and pause pools."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from berth.core.wording.words import format_count
from berth.server.web.faults import form_errors
from berth.server.web.pages import Request, confirm_page, form_page, signed_in, success_response
from berth.server.wiring import load_wiring, local_machine
from pools import services
from pools.models import NodePool
from pools.scale_down import NodeToDrain, list_nodes_to_drain
from pools.web.forms import PoolForm, ScaleForm, SettingsForm, initial_values
from pools.web.pool_changes import MAX_LISTED, confirmation_for

TITLE = "Create node pool"
RETRY = (
    "Provisioning starts again immediately, and the count of failed boots is reset. Fix the cause first: "
    "machines that do not boot cost money."
)
POOL_ACTIONS = {
    "pause": (
        services.pause_pool,
        "The pool does not scale until it is resumed. Running pods continue.",
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
    if request.method == "GET":
        form.set_machine_defaults(len(local_machine().devices))
    more: dict[str, Any] = {"check": "Test connection", "crumbs": [("Node pools", _list_url())]}
    if request.method == "POST" and form.is_valid():
        with form_errors(form, form.field_names_by_path()):
            if "check" in request.POST:
                form.keep_secrets()
                more |= _preview_context(form)
                return form_page(
                    request, form, title=TITLE, label="Create node pool", back=_list_url(), **more
                )
            pool = services.create_pool(actor=request.actor, name=form.cleaned_data["name"], **form.values())
            message = f"Pool {pool} created. Assign quotas so that projects can use it."
            return success_response(request, message, to=_pool_url(pool), leave=True)
    elif request.method == "POST":
        name = form.cleaned_data.get("name", "")
        form.add_remaining_errors(lambda values: services.check_new_pool(name=name, **values))
    return form_page(request, form, title=TITLE, label="Create node pool", back=_list_url(), **more)


def _breadcrumbs(pool: NodePool) -> list[tuple[str, str]]:
    return [("Node pools", _list_url()), (pool.name, _pool_url(pool))]


def _preview_context(form: PoolForm) -> dict[str, Any]:
    preview = services.preview_pool(
        provider_for=load_wiring().provider_for, name=form.cleaned_data["name"], **form.values()
    )
    usable = preview.usable_nodes
    return {
        "result_template": "pools/preview.html",
        "preview": preview,
        "nodes": preview.nodes[:MAX_LISTED],
        "more_nodes": max(0, len(preview.nodes) - MAX_LISTED),
        "gpus": sum(node.total.gpus for node in usable),
        "free_gpus": sum(node.free.gpus for node in usable),
    }


@signed_in
@require_http_methods(["GET", "POST"])
def settings(request: Request, name: str) -> HttpResponse:
    pool = _find_editable_pool(request, name)
    form = SettingsForm(pool, request.POST or None, initial=initial_values(pool), auto_id="pool_%s")
    form.show_secret_times()
    if request.method == "POST" and form.is_valid():
        changes = form.values()
        with form_errors(form, form.field_names_by_path()):
            edited = services.preview_edit(pool, changes)
            nodes_to_drain = (
                list_nodes_to_drain(edited, edited.nodes_desired, timezone.now())
                if edited.nodes_desired < pool.nodes_desired
                else ()
            )
            confirmation = confirmation_for(pool, edited, nodes_to_drain)
            if confirmation and request.POST.get("confirmed") != confirmation.token:
                form.keep_secrets()
                return _settings_page(request, form, confirmation=confirmation)
            services.edit_pool(
                actor=request.actor, pool=pool, changes=changes, version=form.cleaned_data["version"]
            )
            return success_response(
                request, f"Settings for {pool} saved.{_draining_text(nodes_to_drain)}", to=_pool_url(pool)
            )
    elif request.method == "POST":
        form.add_remaining_errors(lambda values: services.preview_edit(pool, values))
    return _settings_page(request, form)


def _settings_page(request: Request, form: SettingsForm, **more: Any) -> HttpResponse:
    pool = form.pool
    return form_page(
        request,
        form,
        title=f"Settings for {pool}",
        label="Save settings",
        back=_pool_url(pool),
        crumbs=_breadcrumbs(pool),
        **more,
    )


@signed_in
@require_http_methods(["GET", "POST"])
def scale(request: Request, name: str) -> HttpResponse:
    pool = _find_editable_pool(request, name)
    initial = {"nodes_desired": pool.nodes_desired, "version": pool.version}
    form = ScaleForm(request.POST or None, initial=initial, auto_id="scale_%s")
    text = "The autoscaler continues from this size after its cooldown. Pause the pool to keep the size."
    if request.method == "POST" and form.is_valid():
        cleaned = form.cleaned_data
        with form_errors(form):
            services.check_nodes_desired(pool, cleaned["nodes_desired"])
            nodes_to_drain = list_nodes_to_drain(pool, cleaned["nodes_desired"], timezone.now())
            if nodes_to_drain and cleaned["confirmed"] != cleaned["nodes_desired"]:
                confirmation_form = ScaleForm(
                    initial={**cleaned, "confirmed": cleaned["nodes_desired"]}, auto_id="scale_%s"
                )
                title = f"Scale {pool} to {format_count(cleaned['nodes_desired'], 'node')}?"
                return form_page(
                    request,
                    confirmation_form,
                    title=title,
                    label="Drain nodes",
                    back=_pool_url(pool),
                    text=text,
                    names="Nodes to drain, with their current workloads",
                    work=nodes_to_drain[:MAX_LISTED],
                    more=max(0, len(nodes_to_drain) - MAX_LISTED),
                )
            services.set_nodes_desired(
                actor=request.actor,
                pool=pool,
                nodes_desired=cleaned["nodes_desired"],
                version=cleaned["version"],
            )
            return success_response(
                request,
                f"{pool} is scaling to {format_count(cleaned['nodes_desired'], 'node')}."
                f"{_draining_text(nodes_to_drain)}",
                to=_pool_url(pool),
            )
    return form_page(
        request, form, title=f"Scale {pool}", label="Scale pool", back=_pool_url(pool), text=text
    )


@signed_in
@require_http_methods(["GET", "POST"])
def apply_action(request: Request, name: str, action_name: str) -> HttpResponse:
    pool = _find_editable_pool(request, name)
    change, warning, result_text = POOL_ACTIONS[action_name]
    if request.method == "POST":
        change(actor=request.actor, pool=pool)
        return success_response(request, f"{pool} {result_text}.", to=_pool_url(pool))
    return confirm_page(
        request,
        title=f"{action_name.capitalize()} {pool}?",
        warning=warning,
        label=action_name.capitalize(),
        back=_pool_url(pool),
    )


def _draining_text(nodes_to_drain: Sequence[NodeToDrain]) -> str:
    if not nodes_to_drain:
        return ""
    more = f" and {len(nodes_to_drain) - MAX_LISTED} more" if len(nodes_to_drain) > MAX_LISTED else ""
    return f" Draining: {', '.join(entry.node.name for entry in nodes_to_drain[:MAX_LISTED])}{more}."


def _find_editable_pool(request: Request, name: str) -> NodePool:
    pool = get_object_or_404(NodePool, name=name)
    request.require("edit", pool)
    return pool


def _list_url() -> str:
    return reverse("node-pools")


def _pool_url(pool: NodePool) -> str:
    return reverse("node-pool", args=[pool.name])
