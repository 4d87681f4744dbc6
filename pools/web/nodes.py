"""Pages that show, cordon, drain and terminate nodes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import Forbidden
from berth.server.web.numbers import duration
from berth.server.web.pages import Request, confirm_page, page, signed_in, success_response
from pools import selectors, services
from pools.environments.progress import START
from pools.models import Node
from pools.models.node import PENDING, NodeState
from pools.services.upgrades import is_outdated
from pools.web.forms import ReasonForm


@dataclass(frozen=True, slots=True)
class NodeAction:
    warning: str
    result_text: str
    run: Callable[..., None]
    danger: bool = False
    has_reason: bool = True
    names: str = ""  # heading of the list of affected workloads


ACTIONS: Mapping[str, NodeAction] = {
    "cordon": NodeAction(
        "Running pods continue. No new pods are placed on the node.", "is cordoned", services.cordon_node
    ),
    "uncordon": NodeAction(
        "New pods can be placed on the node again.", "is uncordoned", services.uncordon_node, has_reason=False
    ),
    "drain": NodeAction(
        "Running pods have {drain_timeout} to finish. Then the node is terminated and replaced.",
        "is being drained",
        services.drain_node,
        names="Workloads to finish or move",
    ),
    "upgrade": NodeAction(
        "The machine's agent restarts with the server's version. Running pods continue.",
        "gets the current agent",
        services.upgrade_agent,
        has_reason=False,
    ),
    "terminate": NodeAction(
        "The node and its pods are terminated immediately. The pool replaces the node.",
        "is being terminated",
        services.terminate_node,
        danger=True,
        names="Workloads to be stopped",
    ),
}

# Actions offered in each node state.
NODE_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "requested": ("terminate",),
    "booting": ("terminate",),
    "ready": ("cordon", "drain", "terminate"),
    "cordoned": ("uncordon", "drain", "terminate"),
    "draining": ("uncordon", "terminate"),
}
MAX_EVENTS = 20


@signed_in
@require_GET
def show(request: Request, name: str) -> HttpResponse:
    """Show a node with its hardware, environment and boot progress.

    An ended node is shown in its last state.
    """
    node = selectors.find_node(name, _visible_nodes(request, Node.objects.all()))
    if node is None:
        raise Http404(f"There is no node named {name}. Check the name.")
    is_admin = _is_allowed(request, "administer")
    context = {
        "node": node,
        "phases": (phases := _phase_rows(node, is_admin=is_admin)),
        "boot_steps": _boot_steps(node, phases) if node.state in PENDING else [],
        "started": _start_script_progress(node, is_admin=is_admin),
        "is_admin": is_admin,
        "is_booting": node.state in PENDING,
        "agent_outdated": is_admin and is_outdated(node.inventory),
        "node_actions": NODE_ACTIONS.get(node.state, ()) if _is_allowed(request, "edit", node) else (),
        "events": [
            (event, selectors.visible_reason(event, is_admin=is_admin))
            for event in node.scaling_events.order_by("-at", "-pk")[:MAX_EVENTS]
        ],
        "took": (node.prepared_at - node.created_at).total_seconds() if node.prepared_at else None,
    }
    return page(request, "pools/node.html", context, inner="pools/node_changes.html")


def _visible_nodes(request: Request, nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Return the nodes, or none for a user without a role."""
    return nodes if _is_allowed(request, "view_capacity") else nodes.none()


def _is_allowed(request: Request, action: str, target: Node | None = None) -> bool:
    try:
        request.require(action, target)
    except Forbidden:
        return False
    return True


def _phase_rows(node: Node, *, is_admin: bool) -> list[dict[str, Any]]:
    """Return all installation phases with their states. Only platform admins see failure messages."""
    if node.environment is None:
        return []
    reported = {row["phase"]: row for row in node.phases if row["phase"] != START}
    names = [*dict.fromkeys([*node.environment.phases, *reported])]
    if node.prepared_at is not None and reported:
        names = list(reported)  # this node skipped phases that an earlier node on the machine completed
    pending = {"state": "pending", "seconds": 0, "message": ""}
    phases = [{**pending, **reported.get(name, {}), "title": _phase_title(name)} for name in names]
    return phases if is_admin else [{**row, "message": ""} for row in phases]


PHASE_TITLES = {
    "apt": "Debian packages",
    "python": "Python",
    "pip": "Python packages",
    "code": "Berth's code",
}


def _phase_title(phase: str) -> str:
    return PHASE_TITLES.get(phase) or phase[:1].upper() + phase[1:]


def _boot_steps(node: Node, phases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    has_machine = node.state == NodeState.BOOTING
    steps = [{"title": "Machine", "state": "done" if has_machine else "running", "seconds": None}]
    steps += [
        {
            "title": row["title"],
            "state": row["state"],
            "seconds": row["seconds"],
            "output": row["message"],
        }
        for row in phases
    ]
    is_prepared = has_machine and all(row["state"] == "done" for row in phases)
    return [*steps, {"title": "Ready", "state": "running" if is_prepared else "pending", "seconds": None}]


def _start_script_progress(node: Node, *, is_admin: bool) -> dict[str, Any] | None:
    started = next((row for row in node.phases if row["phase"] == START), None)
    return started if started is None or is_admin else {**started, "message": ""}


@signed_in
@require_http_methods(["GET", "POST"])
def apply_action(request: Request, name: str, action_name: str) -> HttpResponse:
    """Ask for confirmation on GET, and perform the action on POST."""
    node = get_object_or_404(_visible_nodes(request, selectors.nodes()), name=name)
    request.require("edit", node)
    action, back = ACTIONS[action_name], reverse("node-pool", args=[node.pool.name])
    form = ReasonForm(request.POST or None, auto_id="node_%s") if action.has_reason else None
    if request.method == "POST" and (form is None or form.is_valid()):
        reason = {"reason": form.cleaned_data["reason"]} if form else {}
        action.run(actor=request.actor, node=node, **reason)
        return success_response(request, f"{node.name} {action.result_text}.", to=back)
    return confirm_page(
        request,
        title=f"{action_name.capitalize()} {node.name}?",
        warning=action.warning.format(drain_timeout=duration(node.pool.drain_timeout)),
        label=action_name.capitalize(),
        danger=action.danger,
        form=form,
        names=action.names,
        work=selectors.workloads_on_nodes([node.pk])[node.pk] if action.names else (),
        lost_work=_lost_work_url(node, action_name) if action.names else "",
        back=back,
    )


def _lost_work_url(node: Node, action_name: str) -> str:
    url = reverse("node-lost-work", args=[node.name])
    return f"{url}?drain=1" if action_name == "drain" else url
