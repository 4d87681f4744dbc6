"""Cordon, uncordon or drain several nodes of a pool, after the user has confirmed their number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.wording.words import format_count
from berth.server.web.numbers import duration
from berth.server.web.pages import Request, page, signed_in, success_response
from pools import selectors
from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.services.node_batches import NodeBatch, change_nodes
from pools.web.forms import ReasonForm
from pools.web.nodes import NODE_ACTIONS

MAX_NODES = 500
MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class BatchAction:
    warning: str
    result_text: str
    state: str  # node state that needs no change
    has_reason: bool = True
    names: str = ""  # heading of the list of affected workloads


ACTIONS: Mapping[str, BatchAction] = {
    "cordon": BatchAction(
        "Running pods continue. No new pods are placed on these nodes.", "cordoned", NodeState.CORDONED
    ),
    "uncordon": BatchAction(
        "New pods can be placed on these nodes again. Drains stop.",
        "uncordoned",
        NodeState.READY,
        has_reason=False,
    ),
    "drain": BatchAction(
        "Running pods have {drain_timeout} to finish. Then the nodes are terminated and replaced.",
        "draining",
        NodeState.DRAINING,
        names="Workloads to finish or move",
    ),
}


@signed_in
@require_http_methods(["GET", "POST"])
def apply_to_nodes(request: Request, name: str, action_name: str) -> HttpResponse:
    """Ask for confirmation (GET), or change the confirmed nodes (POST).

    The query selects nodes by name (`node`) or state (`state`). Nodes that the action does not apply to are
    only listed.
    """
    pool = get_object_or_404(NodePool, name=name)
    request.require("edit", pool)
    action, back = ACTIONS[action_name], reverse("node-pool", args=[pool.name])
    form = ReasonForm(request.POST or None, auto_id="nodes_%s") if action.has_reason else None
    if request.method == "POST" and (form is None or form.is_valid()):
        details = {"reason": form.cleaned_data["reason"]} if form else {}
        confirmed = _nodes_by_name(pool, request.POST.get("nodes", "").split())
        batch = change_nodes(actor=request.actor, nodes=confirmed, action=action_name, **details)
        return success_response(request, _describe_result(batch, action), to=back, warns=bool(batch.rejected))
    selected = _selected_nodes(request, pool)
    chosen = [node for node in selected if action_name in NODE_ACTIONS.get(node.state, ())]
    unchanged = [node for node in selected if node not in chosen]
    count = format_count(len(chosen), "node")
    warning = action.warning.format(drain_timeout=duration(pool.drain_timeout))
    context = {
        "title": f"{action_name.capitalize()} {count}?" if chosen else f"No nodes to {action_name}",
        "warning": warning if chosen else "Select nodes to which the action applies.",
        "label": f"{action_name.capitalize()} {count}",
        "post_to": request.path,
        "back": back,
        "form": form,
        "chosen": chosen,
        "listed": chosen[:MAX_LISTED],
        "more": max(0, len(chosen) - MAX_LISTED),
        "node_names": " ".join(node.name for node in chosen),
        "batch_max": MAX_NODES,
        "left": max(0, _selected_count(request, pool) - MAX_NODES),
        "unchanged": unchanged[:MAX_LISTED],
        "unchanged_more": max(0, len(unchanged) - MAX_LISTED),
        **(_affected_workloads(chosen, action) if action.names else {}),
    }
    status = 422 if form and form.errors else 200
    return page(request, "pools/node_batch.html", context, inner="pools/node_batch_form.html", status=status)


def _selected_nodes(request: Request, pool: NodePool) -> list[Node]:
    query = _query(request)
    if state := query.get("state", ""):
        return list(_live_nodes(pool).filter(state=state)[:MAX_NODES])
    return _nodes_by_name(pool, _selected_names(query))


def _selected_count(request: Request, pool: NodePool) -> int:
    """Return the number of selected nodes, which can exceed the maximum per request."""
    query = _query(request)
    if state := query.get("state", ""):
        return int(_live_nodes(pool).filter(state=state).count())
    return len(_selected_names(query))


def _query(request: Request) -> Any:
    return request.POST if request.method == "POST" else request.GET


def _selected_names(query: Any) -> list[str]:
    return query.getlist("node") or query.get("nodes", "").split()


def _nodes_by_name(pool: NodePool, names: Sequence[str]) -> list[Node]:
    return list(_live_nodes(pool).filter(name__in=names[:MAX_NODES]))


def _live_nodes(pool: NodePool) -> Any:
    return selectors.nodes().filter(pool=pool).order_by("ordinal", "pk")


def _affected_workloads(nodes: Sequence[Node], action: BatchAction) -> dict[str, Any]:
    by_node = selectors.workloads_on_nodes([node.pk for node in nodes])
    work = sorted({str(workload.handle) for entries in by_node.values() for workload in entries})
    return {"names": action.names, "work": work[:MAX_LISTED], "more_work": max(0, len(work) - MAX_LISTED)}


def _describe_result(batch: NodeBatch, action: BatchAction) -> str:
    verb = "is" if len(batch.changed) == 1 else "are"
    parts = [f"{format_count(len(batch.changed), 'node')} {verb} {action.result_text}."]
    if batch.unchanged:
        verb = "was" if len(batch.unchanged) == 1 else "were"
        parts.append(f"{format_count(len(batch.unchanged), 'node')} {verb} {action.state} before.")
    return " ".join([*parts, *(reason for _, reason in batch.rejected[:3])])
