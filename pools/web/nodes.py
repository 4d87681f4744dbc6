"""Page actions on nodes: cordon, drain, terminate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import Forbidden
from berth.server.web.pages import Request, done, page, signed_in
from pools import selectors, services
from pools.environments.progress import START
from pools.models import Node
from pools.web.forms import ReasonForm


@dataclass(frozen=True, slots=True)
class Step:
    warning: str
    past: str
    do: Callable[..., None]
    danger: bool = False
    has_reason: bool = True
    names: str = ""  # heading of the list of affected workloads


STEPS: Mapping[str, Step] = {
    "cordon": Step(
        "Running pods continue. No new pods are placed on the node.", "is cordoned", services.cordon_node
    ),
    "uncordon": Step(
        "New pods can be placed on the node again.", "is uncordoned", services.uncordon_node, has_reason=False
    ),
    "drain": Step(
        "Running pods may finish within the pool's drain timeout; then the node is terminated and replaced.",
        "is being drained",
        services.drain_node,
        names="Workloads to finish or to move",
    ),
    "terminate": Step(
        "The node and its pods are terminated at once. The pool replaces the node.",
        "is being terminated",
        services.terminate_node,
        danger=True,
        names="Workloads to be stopped",
    ),
}


@signed_in
@require_GET
def show(request: Request, name: str) -> HttpResponse:
    """Show a node with its hardware, environment and boot progress.

    An ended node is shown in its last state, so that the reason for a failed start stays visible.
    """
    node = selectors.node_named(name, _visible(request, Node.objects.all()))
    if node is None:
        raise Http404(f"No node is named {name}.")
    running_it = _may(request, "administer")
    context = {
        "node": node,
        "phases": _phases(node, running_it=running_it),
        "started": _start(node, running_it=running_it),
        "running_it": running_it,
        "work": selectors.work_on([node.pk])[node.pk] if running_it else (),
        "took": (node.prepared_at - node.created_at).total_seconds() if node.prepared_at else None,
    }
    return page(request, "pools/node.html", context, inner="pools/node_body.html")


def _visible(request: Request, nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Return these nodes, or none for a user without a role."""
    return nodes if _may(request, "view_capacity") else nodes.none()


def _may(request: Request, action: str) -> bool:
    try:
        request.require(action)
    except Forbidden:
        return False
    return True


def _phases(node: Node, *, running_it: bool) -> list[dict[str, Any]]:
    """Return all installation phases with their state. Only platform admins see messages of failed phases."""
    if node.environment is None:
        return []
    reported = {each["phase"]: each for each in node.phases if each["phase"] != START}
    names = [*dict.fromkeys([*node.environment.phases, *reported])]
    if node.prepared_at is not None and reported:
        names = list(reported)  # another node on this machine had installed the rest
    pending = {"state": "waiting", "seconds": 0, "message": ""}
    phases = [{**pending, **reported.get(name, {}), "phase": name} for name in names]
    return phases if running_it else [{**each, "message": ""} for each in phases]


def _start(node: Node, *, running_it: bool) -> dict[str, Any] | None:
    """Return the progress of the start script, or None if there is none or it has not started."""
    started = next((each for each in node.phases if each["phase"] == START), None)
    return started if started is None or running_it else {**started, "message": ""}


@signed_in
@require_http_methods(["GET", "POST"])
def act(request: Request, name: str, step: str) -> HttpResponse:
    """Ask for confirmation (GET), then perform the action (POST)."""
    node = get_object_or_404(_visible(request, selectors.nodes()), name=name)
    request.require("edit", node)
    action, back = STEPS[step], reverse("node-pool", args=[node.pool.name])
    form = ReasonForm(request.POST or None, auto_id="node_%s") if action.has_reason else None
    if request.method == "POST" and (form is None or form.is_valid()):
        reason = {"reason": form.cleaned_data["reason"]} if form else {}
        action.do(acting=request.acting, node=node, **reason)
        return done(request, f"{node.name} {action.past}.", to=back)
    context = {
        "title": f"{step.capitalize()} {node.name}?",
        "warning": action.warning,
        "label": step.capitalize(),
        "danger": action.danger,
        "form": form,
        "names": action.names,
        "work": selectors.work_on([node.pk])[node.pk] if action.names else (),
        "post_to": request.path,
        "back": back,
    }
    status = 422 if form and form.is_bound else 200
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html", status=status)
