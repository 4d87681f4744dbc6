"""Build a snapshot of the cluster from database rows."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from berth.db.queries.compiled import compiled_once
from pools.models import NodePool
from scheduler.engine import model
from scheduler.engine.from_spec import to_timestamp
from scheduler.loop.observe.image_policies import ImagePolicies
from scheduler.loop.observe.isolation import ServedProjects, local_pools, missing_features_by_pool
from scheduler.loop.observe.live_workloads import LiveWorkloads, ObservationValues
from scheduler.loop.observe.nodes import NodeCache, engine_pool, load_node_rows
from scheduler.loop.observe.queues import Queues, load_queues
from scheduler.loop.observe.runtimes import ExpectedRuntimes
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.volumes import VolumeRejections
from scheduler.loop.observe.workloads import ObservedWorkload
from scheduler.loop.queries import POOLS
from scheduler.models import Reservation
from scheduler.reports.explanations.pool_readiness import PoolReadiness, pools_below_threshold

RESERVATIONS = compiled_once(lambda: Reservation.objects.order_by("workload_id", "role", "index"))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """View of the cluster: a snapshot built from database rows, with the row or ID of each object."""

    at: datetime
    snapshot: model.Snapshot
    workloads: Mapping[str, ObservedWorkload]
    pods: Mapping[tuple[str, str, int], uuid.UUID]
    nodes: Mapping[str, int]
    pools: Mapping[str, NodePool]
    queues: Queues
    # Pools below their ready threshold.
    below_threshold: Mapping[str, PoolReadiness] = field(default_factory=dict)
    never_met: frozenset[uuid.UUID] = frozenset()  # workloads with a dependency that can no longer be met
    # Whether reservation rows may exist.
    has_reservations: bool = field(default=True, compare=False)


@dataclass(slots=True)
class ObservationCache:
    """Values of unchanged rows, reused by the next observation. Not thread-safe."""

    workloads: LiveWorkloads = field(default_factory=LiveWorkloads)
    nodes: NodeCache = field(default_factory=NodeCache)
    runtimes: ExpectedRuntimes = field(default_factory=ExpectedRuntimes)


def observe(
    now: datetime, specs: SpecCache, cache: ObservationCache | None = None, *, has_reservations: bool = True
) -> ClusterView:
    """Return the current view.

    Expected runtimes may be a few minutes old. Callers that know that there are no reservations pass
    `has_reservations=False`.
    """
    cache = cache or ObservationCache()
    pools = {pool.name: pool for pool in POOLS()}
    pool_names = {pool.pk: pool.name for pool in pools.values()}
    nodes = [node for node in load_node_rows() if node.pool_id in pool_names]
    below_threshold = pools_below_threshold(pools.values(), nodes)
    holds_nodes = any(pool.reservation_after is not None for pool in pools.values())
    queues = load_queues(now, pools.values(), cache.runtimes.current_runtimes(now) if holds_nodes else None)
    node_names = {node.pk: node.name for node in nodes}
    served = ServedProjects(nodes, local_pools(pools.values()))
    lacking = missing_features_by_pool(nodes)
    live = cache.workloads
    volumes = {pool.pk: pool.volumes for pool in pools.values() if pool.volumes}
    policies, offers = ImagePolicies(pools.values()), VolumeRejections(pools.values())
    live.observe(ObservationValues(now, queues, policies, offers, node_names, specs))
    return ClusterView(
        at=now,
        snapshot=model.Snapshot(
            now=to_timestamp(now),
            pools=tuple(engine_pool(pool, now, lacking.get(pool.pk, {})) for pool in pools.values()),
            nodes=cache.nodes.to_engine_nodes(
                nodes, pool_names, below_threshold, served.project_names_by_node(queues.projects), volumes
            ),
            queues=queues.queues,
            workloads=live.engine_objects(),
            reservations=_engine_reservations(live, node_names) if has_reservations else (),
        ),
        workloads=dict(live.observed),
        pods=live.pod_ids(),
        nodes={node.name: node.pk for node in nodes},
        pools=pools,
        queues=queues,
        below_threshold=below_threshold,
        never_met=live.never_met,
        has_reservations=has_reservations,
    )


def _engine_reservations(live: LiveWorkloads, node_names: Mapping[int, str]) -> tuple[model.Reservation, ...]:
    rows = list(RESERVATIONS())
    names = live.engine_names({row.workload_id for row in rows})
    return tuple(
        model.Reservation(
            workload=names[row.workload_id],
            role=row.role,
            index=row.index,
            node=node_names[row.node_id],
            devices=tuple(row.devices),
            milli=row.gpu_milli,
            expires=to_timestamp(row.expires_at) if row.expires_at else None,
        )
        for row in rows
        if row.workload_id in names and row.node_id in node_names
    )
