"""Node provider for an existing Kubernetes cluster.

Launching claims nodes of the cluster, and terminating releases them. Berth never creates or modifies nodes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from berth.core.wording.words import format_count
from pools.kubernetes.api_server.api import AccessDenied, ApiError, Unreachable
from pools.kubernetes.cluster import PoolAccess
from pools.kubernetes.manifests import INSTANCE_ANNOTATION
from pools.kubernetes.mirror import Mirror
from pools.kubernetes.nodes import POOL_LABEL, ClusterNode, Inventory, is_large_enough, read_inventory
from pools.kubernetes.preview.examine import examine_cluster
from pools.models import NodeClaim, NodePool
from pools.providers.base import (
    Instance,
    InstanceState,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.providers.preview import Preview

REASONS_SHOWN = 5


class KubernetesProvider:
    """Provider of cluster nodes for one pool.

    `access` returns the cluster, shared by all pools with the same credentials. `connect` opens a separate
    connection. Both raise ProviderError.
    """

    has_joining_machines = False

    def __init__(
        self, access: Callable[[], PoolAccess], connect: Callable[[], AbstractContextManager[PoolAccess]],
        now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._get_access, self._connect, self._now = access, connect, now

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        claims = list(_pool_claims(order.pool).filter(client_token=order.client_token))
        inventory = self.inventory(order.pool)
        if not claims:
            claims = self._claim_nodes(order, inventory)
        message = "" if len(claims) >= order.count else self._shortage_message(order, inventory)
        return ProvisionResult(tuple(self._claimed_instance(claim, inventory) for claim in claims), message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        inventory = self.inventory(pool)
        claims = _pool_claims(pool).filter(ended_at=None)
        instances = [self._claimed_instance(claim, inventory) for claim in claims]
        return tuple(sorted(instances, key=lambda instance: (instance.ordinal, instance.instance_id)))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        keys = [key for key in map(_claim_key, instance_ids) if key is not None]
        _pool_claims(pool).filter(pk__in=keys, ended_at=None).update(ended_at=self._now())

    def preview(self, pool: str, shape: Shape) -> Preview:
        claims = NodeClaim.objects.filter(ended_at=None).exclude(pool__name=pool)
        claimed_by = dict(claims.values_list("node_uid", "pool__name"))
        with self._connect() as access:
            try:
                return examine_cluster(access, shape, claimed_by)
            except Unreachable as error:
                raise ProviderError(ProviderErrorKind.TIMEOUT, str(error)) from None
            except ApiError as error:
                kind = ProviderErrorKind.CREDENTIALS if error.status == 401 else ProviderErrorKind.BROKEN
                raise ProviderError(kind, f"{access.cluster.api.server}: {error.message}") from None

    def inventory(self, pool: str) -> Inventory:
        """Return the nodes that match the pool's selector. Raises ProviderError."""
        access = self._get_access()
        cluster, settings = access.cluster, access.settings
        try:
            nodes, pods = cluster.mirror.nodes(), cluster.mirror.pods()
        except Unreachable as error:
            is_denied = isinstance(error, AccessDenied)
            kind = ProviderErrorKind.CREDENTIALS if is_denied else ProviderErrorKind.TIMEOUT
            raise ProviderError(kind, str(error)) from None
        instances = {instance_id(claim) for claim in _pool_claims(pool).filter(ended_at=None)}
        at = self._now() + cluster.api.clock_skew
        return read_inventory(
            nodes, pods, settings, at, lambda pod: _is_own(pod, cluster.mirror, pool, instances)
        )

    def _claim_nodes(self, order: LaunchRequest, inventory: Inventory) -> list[NodeClaim]:
        free = [node for node in self._free_nodes(inventory) if is_large_enough(node, order.shape)]
        claims: list[NodeClaim] = []
        with transaction.atomic():
            list(NodePool.objects.select_for_update(no_key=True).filter(name=order.pool))
            pool = NodePool.objects.get(name=order.pool)
            for node in free:
                if len(claims) == order.count:
                    break
                claim = self._claim(node, pool, order, order.start_ordinal + len(claims))
                claims += [] if claim is None else [claim]
        if not claims:
            raise ProviderError(ProviderErrorKind.CAPACITY, self._shortage_message(order, inventory))
        return claims

    def _claim(
        self, node: ClusterNode, pool: NodePool, order: LaunchRequest, ordinal: int
    ) -> NodeClaim | None:
        """Claim a node for the pool. Return None if another pool claimed it first."""
        try:
            with transaction.atomic():
                return NodeClaim.objects.create(
                    pool=pool, node_name=node.name, node_uid=node.uid, client_token=order.client_token,
                    ordinal=ordinal, began_at=self._now(),
                )  # fmt: skip
        except IntegrityError:
            return None

    def _free_nodes(self, inventory: Inventory) -> list[ClusterNode]:
        claimed = set(NodeClaim.objects.filter(ended_at=None).values_list("node_uid", flat=True))
        usable = [node for node in inventory.nodes.values() if not node.obstacle and node.uid not in claimed]
        return sorted(usable, key=lambda node: (inventory.foreign_requests(node).gpus, node.name))

    def _shortage_message(self, order: LaunchRequest, inventory: Inventory) -> str:
        free = self._free_nodes(inventory)
        fitting = sum(is_large_enough(node, order.shape) for node in free)
        selected = format_count(len(inventory.nodes), "node")
        parts = [f"{selected} of the cluster selected, {len(free)} free, {fitting} large enough"]
        parts += list(_list_obstacles(inventory.nodes.values()))
        return "; ".join(parts)

    def _claimed_instance(self, claim: NodeClaim, inventory: Inventory) -> Instance:
        node = inventory.nodes.get(claim.node_name)
        message, state = "", InstanceState.READY
        if claim.ended_at is not None or node is None or node.uid != claim.node_uid:
            state, message = InstanceState.GONE, "the node is no longer in the cluster or no longer selected"
        elif node.is_gone(inventory.at):
            state, message = InstanceState.GONE, node.obstacle
        return Instance(
            instance_id=instance_id(claim),
            ordinal=claim.ordinal,
            state=state,
            client_token=claim.client_token,
            address="" if node is None else node.address,
            devices=() if node is None else tuple(map(str, range(node.allocatable.gpus))),
            message=message,
            obstacle="" if node is None else node.obstacle,
            shape=None if node is None else inventory.shape(node),
            shared=None if node is None else inventory.to_shared_machine(node),
        )


def _is_own(pod: Mapping[str, Any], mirror: Mirror, pool: str, instances: Collection[str]) -> bool:
    """Return whether the pod belongs to a current instance of the pool, not to an earlier one."""
    metadata = pod["metadata"]
    return (
        mirror.is_own_pod(pod)
        and metadata["labels"].get(POOL_LABEL) == pool
        and (metadata.get("annotations") or {}).get(INSTANCE_ANNOTATION) in instances
    )


def instance_id(claim: NodeClaim) -> str:
    return f"{claim.node_name}/{claim.pk}"


def _claim_key(instance: str) -> int | None:
    key = instance.rpartition("/")[2]
    return int(key) if key.isdecimal() and len(key) < 19 else None


def _pool_claims(pool: str) -> Any:
    return NodeClaim.objects.filter(pool__name=pool).order_by("pk")


def _list_obstacles(nodes: Iterable[ClusterNode]) -> Iterable[str]:
    reasons = [f"{node.name}: {node.obstacle}" for node in nodes if node.obstacle]
    yield from reasons[:REASONS_SHOWN]
    if len(reasons) > REASONS_SHOWN:
        yield f"and {len(reasons) - REASONS_SHOWN} more"
