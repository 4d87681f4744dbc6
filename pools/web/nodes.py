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
    asks_why: bool = True
    names: str = ""  # what becomes of the work that is on it, before its names


STEPS: Mapping[str, Step] = {
    "cordon": Step(
        "Running pods continue. No new pods are placed on the node.", "is cordoned", services.cordon_node
    ),
    "uncordon": Step(
        "New pods can be placed on the node again.", "is uncordoned", services.uncordon_node, asks_why=False
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
    """One node: what it has, what is installed on it, and its progress while it boots.

    Of a node that has ended the last state, so that the reason for a failed start can be read.
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
    """These nodes, or none for an account without a role."""
    return nodes if _may(request, "view_capacity") else nodes.none()


def _may(request: Request, action: str) -> bool:
    try:
        request.require(action)
    except Forbidden:
        return False
    return True


def _phases(node: Node, *, running_it: bool) -> list[dict[str, Any]]:
    """All that there will be, each with how it is; what failed says why to those who run it."""
    if node.environment is None:
        return []
    told = {each["phase"]: each for each in node.phases if each["phase"] != START}
    names = [*dict.fromkeys([*node.environment.phases, *told])]
    if node.prepared_at is not None and told:
        names = list(told)  # another node of this machine had made the rest already
    waiting = {"state": "waiting", "seconds": 0, "message": ""}
    found = [{**waiting, **told.get(name, {}), "phase": name} for name in names]
    return found if running_it else [{**each, "message": ""} for each in found]


def _start(node: Node, *, running_it: bool) -> dict[str, Any] | None:
    """Progress of the start script; None for a node that has none, or whose machine has not run it yet."""
    started = next((each for each in node.phases if each["phase"] == START), None)
    return started if started is None or running_it else {**started, "message": ""}


@signed_in
@require_http_methods(["GET", "POST"])
def act(request: Request, name: str, step: str) -> HttpResponse:
    """Asks first (GET), then does it (POST)."""
    node = get_object_or_404(_visible(request, selectors.nodes()), name=name)
    request.require("edit", node)
    asked, back = STEPS[step], reverse("node-pool", args=[node.pool.name])
    form = ReasonForm(request.POST or None, auto_id="node_%s") if asked.asks_why else None
    if request.method == "POST" and (form is None or form.is_valid()):
        reason = {"reason": form.cleaned_data["reason"]} if form else {}
        asked.do(acting=request.acting, node=node, **reason)
        return done(request, f"{node.name} {asked.past}.", to=back)
    context = {
        "title": f"{step.capitalize()} {node.name}?",
        "warning": asked.warning,
        "label": step.capitalize(),
        "danger": asked.danger,
        "form": form,
        "names": asked.names,
        "work": selectors.work_on([node.pk])[node.pk] if asked.names else (),
        "post_to": request.path,
        "back": back,
    }
    status = 422 if form and form.is_bound else 200
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html", status=status)
