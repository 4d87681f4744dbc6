"""Read rows into a frozen snapshot."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pools.models import NodePool
from scheduler.capacity import NODE_STATES, KnownNodes, node_rows, pool_of
from scheduler.engine import model
from scheduler.engine.from_spec import seconds_of
from scheduler.models import Reservation
from scheduler.queues import Queues, queues_at
from scheduler.reports.explanations.pool_readiness import Opening, openings
from scheduler.specs import Specs
from scheduler.waits import find_waits
from scheduler.work import KnownWork, Names, SeenWorkload, by_workload


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the rows: the snapshot, and which rows the engine's names stand for."""

    at: datetime
    snapshot: model.Snapshot
    workloads: Mapping[str, SeenWorkload]
    pods: Mapping[tuple[str, str, int], uuid.UUID]
    nodes: Mapping[str, int]
    pools: Mapping[str, NodePool]
    queues: Queues
    opening: Mapping[str, Opening] = field(default_factory=dict)  # pools that do not take work yet


@dataclass(slots=True)
class Known:
    """What one look leaves to the next, for what stays as it was. Not for two threads at once."""

    work: KnownWork = field(default_factory=KnownWork)
    nodes: KnownNodes = field(default_factory=KnownNodes)


def observe(now: datetime, specs: Specs, known: Known | None = None) -> Seen:
    """The same with `known` and without, but for the effort."""
    known = known or Known()
    pools = {pool.name: pool for pool in NodePool.objects.order_by("name")}
    pool_names = {pool.pk: pool.name for pool in pools.values()}
    nodes = [node for node in node_rows() if node.pool_id in pool_names]
    opening = openings(pools.values(), nodes)
    queues = queues_at(now, pools.values())
    rows = known.work.rows.read()
    names = {row.pk: f"{queues.project_names[row.project_id]}/{row.name}" for row in rows}
    meanings = specs.of_all(names)
    specs.keep_only(names)
    waits = find_waits(rows, meanings, set(names.values()), queues)
    places = {node.pk: node.name for node in nodes}
    pods = by_workload(rows, known.work.pods.read(), places)
    work = []
    for row in rows:
        called = Names(
            names[row.pk],
            queues.projects[row.project_id],
            waits.unmet.get(row.pk, ()),
            waits.unsubmitted.get(row.pk, ()),
            meanings[row.pk],
        )
        work.append(known.work.described(row, pods.get(row.pk, ()), called, places, now))
    known.work.keep_only(rows)
    return Seen(
        at=now,
        snapshot=model.Snapshot(
            now=seconds_of(now),
            pools=tuple(pool_of(pool, now) for pool in pools.values()),
            nodes=known.nodes.described(nodes, pool_names, opening),
            queues=queues.described,
            workloads=(*(each.workload for each in work), *waits.stand_ins),
            reservations=_reservations(names),
        ),
        workloads={each.names.name: each.seen for each in work},
        pods={key: pk for each in work for key, pk in each.stand},
        nodes={node.name: node.pk for node in nodes},
        pools=pools,
        queues=queues,
        opening=opening,
    )


def _reservations(names: Mapping[uuid.UUID, str]) -> tuple[model.Reservation, ...]:
    rows = Reservation.objects.select_related("node").order_by("workload_id", "role", "index")
    return tuple(
        model.Reservation(
            workload=names[row.workload_id],
            role=row.role,
            index=row.index,
            node=row.node.name,
            devices=tuple(row.devices),
            milli=row.gpu_milli,
            expires=seconds_of(row.expires_at) if row.expires_at else None,
        )
        for row in rows
        if row.workload_id in names and row.node.state in NODE_STATES
    )
