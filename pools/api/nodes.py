"""REST endpoints that list, cordon, drain and terminate nodes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.db.models import QuerySet
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.db.queries.known_names import NameColumn, check_names, unknown_name_problem
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import ListQuery, NoBody, Word, parse_body, parse_query
from berth.server.api.responses import Amounts, ResponseModel, from_milli
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools import selectors, services
from pools.api.pools import ReasonBody
from pools.api.schemas.capacity import annotate_allocated_amounts, node_capacity, node_free_capacity
from pools.api.schemas.inventory import InventoryResponse, inventory_response
from pools.api.schemas.pools import LevelChoice
from pools.models import Node, NodePool

BY_POOL_AND_ORDINAL = Order("place", ("pool__name", "ordinal", "id"))
NodeStateChoice = Literal["requested", "booting", "ready", "cordoned", "draining", "lost"]
AnyNodeStateChoice = Literal[NodeStateChoice, "ended"]


class NodesQuery(ListQuery):
    pool: Word | None = None
    state: tuple[NodeStateChoice, ...] = ()


class PhaseResponse(ResponseModel):
    phase: str
    state: Literal["running", "done", "failed"]
    seconds: int
    message: str = Field(description="Last output of a failed phase or of `start`; only for platform admins.")
    exit_code: int | None = Field(None, description="Exit code of the start script (phase `start`).")


class IsolationResponse(ResponseModel):
    level: LevelChoice = Field(description="`users` is the strongest; see the guide on isolation.")
    policy: Literal["require", "auto", "off"] = Field(description="`BERTH_ISOLATION` on the node.")
    obstacle: str = Field(
        description="Reason the node does not offer the strongest level; only for platform admins."
    )
    limits: list[Literal["memory", "cpu", "processes"]] = Field(
        description="Pod limits that the node enforces."
    )
    limits_obstacle: str = Field(
        description="Reason the node does not enforce the others; only for platform admins."
    )
    images: str = Field(description="Version of podman, if the node runs container images.")
    images_obstacle: str = Field(
        description="Reason the node does not run container images; only for platform admins."
    )
    seccomp: bool = Field(description="Whether pods' system calls are filtered.")
    seccomp_obstacle: str = Field(
        description="Reason pods' system calls are not filtered; only for platform admins."
    )


class ForeignUsage(ResponseModel):
    """Resource requests of pods that Berth does not own. The node's capacity excludes them."""

    gpus: int
    cpu: float
    memory_mib: int
    pods: int


class NodeResponse(ResponseModel):
    name: str
    pool: str
    ordinal: int
    state: AnyNodeStateChoice
    since: datetime
    gpus: int
    gpu_model: str
    gpu_memory_mib: int
    capacity: Amounts
    free: Amounts = Field(description="Zero on a node that accepts no pods.")
    max_pods: int
    labels: dict[str, Any]
    taints: list[dict[str, Any]]
    environment_digest: str | None = Field(
        description="Digest of the installed environment; null if there is none."
    )
    phases: list[PhaseResponse] = Field(description="Installation phases, in order.")
    ready_at: datetime | None
    not_ready_reason: str = Field(
        description="Reason a booting node is not ready, such as a failed probe; only for platform admins."
    )
    drain_started_at: datetime | None
    drain_reason: str
    isolation: IsolationResponse | None = Field(
        description="Isolation of the node's pods; null until its agent has reported it."
    )
    inventory: InventoryResponse | None = Field(
        description="Inventory of the machine; null unless you are a platform admin and an agent reported it."
    )
    obstacle: str = Field(
        description="Reason why the machine accepts no new pods, for example because it is cordoned in "
        "Kubernetes; empty if there is none."
    )
    foreign: ForeignUsage | None = Field(
        description="Resources that foreign pods use on the machine; null if there are none."
    )
    instance_id: str | None = Field(description="Null unless you are a platform admin.")
    address: str | None = Field(description="Null unless you are a platform admin.")
    work: list[str] | None = Field(
        description="Workloads with pods on the node, with pod counts; null unless you are a platform admin."
    )
    created_at: datetime


class NodeView(ApiView):
    change_scope = "admin"

    def visible_nodes(self, nodes: QuerySet[Node] | None = None) -> QuerySet[Node]:
        """Return the given nodes, or all nodes that have not ended. Accounts without a role see none."""
        rows: QuerySet[Node] = annotate_allocated_amounts(selectors.nodes() if nodes is None else nodes)
        return rows if self.is_allowed("view_capacity") else rows.none()

    def visible_pools(self) -> QuerySet[NodePool]:
        rows = NodePool.objects.all()
        return rows if self.is_allowed("view_capacity") else rows.none()

    def get_node(self, name: str) -> Node:
        node = self.visible_nodes().filter(name=name).first()
        if node is None:
            raise not_found_error(ObjectKind.NODE, name=name, visible=NameColumn(self.visible_nodes()).list())
        return node

    def get_administered_node(self, request: Request, name: str) -> Node:
        node = self.get_node(name)
        self.require("administer")
        return node

    def node_response(self, name: str) -> Response:
        return Response(_node_responses([self.get_node(name)], is_admin=self.is_allowed("administer"))[0])


class Nodes(NodeView):
    @operation("List nodes", query=NodesQuery, page=NodeResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, NodesQuery)
        check_names(
            unknown_name_problem("pool", query.pool, "a node pool", [NameColumn(self.visible_pools())])
        )
        rows = self.visible_nodes()
        rows = filter_by(rows, pool__name=query.pool, state__in=query.state or None)
        is_admin = self.is_allowed("administer")

        def to_responses(nodes: Sequence[Node]) -> list[Any]:
            return _node_responses(nodes, is_admin=is_admin)

        return Response(page(rows, query, BY_POOL_AND_ORDINAL, to_responses))


class NodeDetail(NodeView):
    @operation("Get the current or last node with this name", response=NodeResponse)
    def get(self, request: Request, name: str) -> Response:
        node = selectors.find_node(name, self.visible_nodes(Node.objects.all()))
        if node is None:
            raise not_found_error(ObjectKind.NODE, name=name, visible=NameColumn(self.visible_nodes()).list())
        return Response(_node_responses([node], is_admin=self.is_allowed("administer"))[0])


class CordonNode(NodeView):
    @operation("Cordon a node", body=ReasonBody, response=NodeResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.get_administered_node(request, name)
        services.cordon_node(actor=self.actor, node=node, reason=parse_body(request, ReasonBody).reason)
        return self.node_response(name)


class UncordonNode(NodeView):
    @operation("Uncordon a node", response=NodeResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.get_administered_node(request, name)
        parse_body(request, NoBody)
        services.uncordon_node(actor=self.actor, node=node)
        return self.node_response(name)


class DrainNode(NodeView):
    @operation("Drain and terminate a node", body=ReasonBody, response=NodeResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.get_administered_node(request, name)
        services.drain_node(actor=self.actor, node=node, reason=parse_body(request, ReasonBody).reason)
        return self.node_response(name)


class UpgradeNode(NodeView):
    @operation("Upgrade a node's agent without ending its pods", response=NodeResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.get_administered_node(request, name)
        parse_body(request, NoBody)
        services.upgrade_agent(actor=self.actor, node=node)
        return self.node_response(name)


class TerminateNode(NodeView):
    @operation("Terminate a node and its pods immediately", body=ReasonBody, response=NodeResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        node = self.get_administered_node(request, name)
        services.terminate_node(actor=self.actor, node=node, reason=parse_body(request, ReasonBody).reason)
        return self.node_response(name)


def _node_responses(nodes: Sequence[Node], *, is_admin: bool) -> list[Any]:
    work = selectors.workloads_on_nodes([node.pk for node in nodes]) if is_admin else {}
    return [
        _node_response(node, is_admin, [str(workload) for workload in work.get(node.pk, ())])
        for node in nodes
    ]


def _node_response(node: Node, is_admin: bool, work: list[str]) -> NodeResponse:
    return NodeResponse.from_row(
        node,
        pool=node.pool.name,
        capacity=node_capacity(node),
        free=node_free_capacity(node),
        instance_id=node.instance_id if is_admin else None,
        address=node.address if is_admin else None,
        not_ready_reason=node.not_ready_reason if is_admin else "",
        work=work if is_admin else None,
        environment_digest=node.environment_id,
        inventory=inventory_response(node.inventory) if is_admin else None,
        foreign=_foreign_usage(node.foreign),
        isolation=_isolation_response(node.isolation, is_admin),
        phases=[_phase_response(phase, is_admin) for phase in node.phases],
    )


def _foreign_usage(foreign: dict[str, int]) -> ForeignUsage | None:
    if not foreign.get("pods"):
        return None
    return ForeignUsage(
        gpus=foreign["gpus"],
        cpu=from_milli(foreign["cpu_milli"]) or 0,
        memory_mib=foreign["memory_mib"],
        pods=foreign["pods"],
    )


def _isolation_response(isolation: dict[str, Any] | None, is_admin: bool) -> IsolationResponse | None:
    if isolation is None:
        return None
    return IsolationResponse(
        level=isolation["level"],
        policy=isolation["policy"],
        obstacle=isolation["obstacle"] if is_admin else "",
        limits=isolation["limits"],
        limits_obstacle=isolation["limits_obstacle"] if is_admin else "",
        images=isolation.get("images", ""),
        images_obstacle=isolation.get("images_obstacle", "") if is_admin else "",
        seccomp=isolation.get("seccomp", False),
        seccomp_obstacle=isolation.get("seccomp_obstacle", "") if is_admin else "",
    )


def _phase_response(phase: dict[str, Any], is_admin: bool) -> PhaseResponse:
    return PhaseResponse(**{**phase, "message": phase["message"] if is_admin else ""})
