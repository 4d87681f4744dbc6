"""REST endpoints of nodes: list, cordon, drain, terminate."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.core.problems import shown
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import ListQuery, NoBody, Word, no_query, parse_body, parse_query
from berth.server.api.responses import Amounts, Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools import selectors, services
from pools.api.capacity import capacity_of, free_of, with_allocated
from pools.api.pools import Because
from pools.models import Node

BY_PLACE = Order("place", ("pool__name", "ordinal", "id"))
StateWord = Literal["requested", "booting", "ready", "cordoned", "draining", "lost"]
AnyStateWord = Literal[StateWord, "ended"]


class NodesQuery(ListQuery):
    pool: Word | None = None
    state: tuple[StateWord, ...] = ()


class PhaseAnswer(Answer):
    phase: str
    state: Literal["running", "done", "failed"]
    seconds: int
    message: str = Field(description="Last output of a failed phase or of `start`; only for platform admins.")
    exit_code: int | None = Field(None, description="Exit code of the start script (phase `start`).")


class NodeAnswer(Answer):
    name: str
    pool: str
    ordinal: int
    state: AnyStateWord
    since: datetime
    gpus: int
    gpu_model: str
    gpu_memory_mib: int
    capacity: Amounts
    free: Amounts = Field(description="Zero on a node that accepts no pods.")
    max_pods: int
    labels: dict[str, Any]
    taints: list[dict[str, Any]]
    environment_digest: str | None = Field(description="Digest of the installed environment; null for none.")
    phases: list[PhaseAnswer] = Field(description="Installation phases, in order.")
    ready_at: datetime | None
    drain_started_at: datetime | None
    drain_reason: str
    instance_id: str | None = Field(description="Null unless you are a platform admin.")
    address: str | None = Field(description="Null unless you are a platform admin.")
    work: list[str] | None = Field(
        description="Workloads with pods on the node, with pod counts; null unless you are a platform admin."
    )
    created_at: datetime


class NodeView(ApiView):
    change_scope = "admin"

    def visible(self, nodes: QuerySet[Node] | None = None) -> QuerySet[Node]:
        """Return these nodes, by default all that have not ended; none for an account without a role."""
        rows: QuerySet[Node] = with_allocated(selectors.nodes() if nodes is None else nodes)
        return rows if self.allowed("view_capacity") else rows.none()

    def get_node(self, name: str) -> Node:
        node = self.visible().filter(name=name).first()
        if node is None:
            raise NotFound(f"No node is named {shown(name)}.")
        return node

    def to_change(self, request: Request, name: str) -> Node:
        no_query(request)
        node = self.get_node(name)
        self.require("administer")
        return node

    def node_response(self, name: str) -> Response:
        return Response(_answers([self.get_node(name)], running_it=self.allowed("administer"))[0])


class Nodes(NodeView):
    @operation("List nodes", query=NodesQuery, page=NodeAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, NodesQuery)
        rows = self.visible()
        if query.pool is not None:
            rows = rows.filter(pool__name=query.pool)
        if query.state:
            rows = rows.filter(state__in=query.state)
        running_it = self.allowed("administer")

        def answers(nodes: Sequence[Node]) -> list[Any]:
            return _answers(nodes, running_it=running_it)

        return Response(page(rows, query, BY_PLACE, answers))


class OneNode(NodeView):
    @operation("Get a node, or the last one of this name", answer=NodeAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        node = selectors.node_named(name, self.visible(Node.objects.all()))
        if node is None:
            raise NotFound(f"No node is named {shown(name)}.")
        return Response(_answers([node], running_it=self.allowed("administer"))[0])


class CordonNode(NodeView):
    @operation("Cordon a node", body=Because, answer=NodeAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.to_change(request, name)
        services.cordon_node(acting=self.acting, node=node, reason=parse_body(request, Because).reason)
        return self.node_response(name)


class UncordonNode(NodeView):
    @operation("Uncordon a node", answer=NodeAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.to_change(request, name)
        parse_body(request, NoBody)
        services.uncordon_node(acting=self.acting, node=node)
        return self.node_response(name)


class DrainNode(NodeView):
    @operation("Drain and terminate a node", body=Because, answer=NodeAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.to_change(request, name)
        services.drain_node(acting=self.acting, node=node, reason=parse_body(request, Because).reason)
        return self.node_response(name)


class TerminateNode(NodeView):
    @operation("Terminate a node and its pods at once", body=Because, answer=NodeAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.to_change(request, name)
        services.terminate_node(acting=self.acting, node=node, reason=parse_body(request, Because).reason)
        return self.node_response(name)


def _answers(nodes: Sequence[Node], *, running_it: bool) -> list[Any]:
    work = selectors.work_on([node.pk for node in nodes]) if running_it else {}
    return [_answer(node, running_it, [str(each) for each in work.get(node.pk, ())]) for node in nodes]


def _answer(node: Node, running_it: bool, work: list[str]) -> NodeAnswer:
    return NodeAnswer(
        pool=node.pool.name,
        capacity=capacity_of(node),
        free=free_of(node),
        instance_id=node.instance_id if running_it else None,
        address=node.address if running_it else None,
        work=work if running_it else None,
        environment_digest=node.environment_id,
        phases=[_phase(each, running_it) for each in node.phases],
        **{name: getattr(node, name) for name in _PLAIN},
    )


def _phase(phase: dict[str, Any], running_it: bool) -> PhaseAnswer:
    return PhaseAnswer(**{**phase, "message": phase["message"] if running_it else ""})


_COMPUTED = (
    "pool", "capacity", "free", "instance_id", "address", "work", "environment_digest", "phases",
)  # fmt: skip
_PLAIN = tuple(name for name in NodeAnswer.model_fields if name not in _COMPUTED)
