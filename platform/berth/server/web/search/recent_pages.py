"""Recently visited pages with their current state, for the search dialog."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from django.urls import Resolver404, resolve, reverse

from berth.server.web.search.palette import SearchHit
from berth.server.web.search.workloads import array_hits, workload_state
from pools.models.node import NodeState
from projects.access import visible_nodes, visible_pools
from projects.actor import Actor
from projects.queries.services import services
from projects.selectors import arrays, workloads
from scheduler.reports.evictions.rendering import render_with_links
from scheduler.reports.selectors import evictions
from scheduler.reports.visibility import viewer_for

MAX_RECENT, MAX_PATH = 6, 300


def recent_hits(actor: Actor, paths: Iterable[str]) -> list[SearchHit]:
    """Return the pages at the paths, in the same order.

    Pages of objects that the user cannot see are left out.
    """
    chosen = [path[:MAX_PATH] for path in paths][:MAX_RECENT]
    keys_by_kind: dict[str, list[Any]] = {}
    for path in chosen:
        try:
            match = resolve(path)
        except Resolver404:
            continue
        kind = match.url_name or ""
        if kind in KINDS:
            keys_by_kind.setdefault(kind, []).append(next(iter(match.kwargs.values())))
    hits = {hit.path: hit for kind, keys in keys_by_kind.items() for hit in KINDS[kind](actor, keys)}
    return [hits[path] for path in chosen if path in hits]


def _workload_hits(actor: Actor, ids: list[Any]) -> Iterator[SearchHit]:
    for row in workloads(actor).filter(pk__in=ids):
        path = reverse("workload", args=[row.pk])
        yield SearchHit(row.name, path, "workloads", row.project.name, state=workload_state(row))


def _array_hits(actor: Actor, ids: list[Any]) -> Iterator[SearchHit]:
    yield from array_hits(list(arrays(actor).filter(pk__in=ids)))


def _service_hits(actor: Actor, references: list[Any]) -> Iterator[SearchHit]:
    ids = [text for text in references if _is_id(text)]
    for row in services(actor).filter(workload_id__in=ids):
        workload, path = row.workload, reverse("service", args=[row.workload_id])
        yield SearchHit(
            workload.name, path, "services", workload.project.name, state=workload_state(workload)
        )


def _pool_hits(actor: Actor, names: list[Any]) -> Iterator[SearchHit]:
    for row in visible_pools(actor).filter(name__in=names):
        yield SearchHit(row.name, reverse("node-pool", args=[row.name]), "pools")


def _node_hits(actor: Actor, names: list[Any]) -> Iterator[SearchHit]:
    rows = visible_nodes(actor).filter(name__in=names).exclude(state=NodeState.ENDED)
    for row in rows.select_related("pool"):
        yield SearchHit(row.name, reverse("node", args=[row.name]), "pools", row.pool.name, state=row.state)


def _eviction_hits(actor: Actor, ids: list[Any]) -> Iterator[SearchHit]:
    rows = list(evictions(actor).filter(pk__in=ids))
    for row, rendered in zip(rows, render_with_links(viewer_for(actor), rows), strict=True):
        yield SearchHit(rendered.summary, reverse("eviction", args=[row.pk]), "evictions")


def _is_id(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4 and all(char in "0123456789abcdef-" for char in text)


KINDS: Mapping[str, Callable[[Actor, list[Any]], Iterator[SearchHit]]] = {
    "workload": _workload_hits,
    "array": _array_hits,
    "service": _service_hits,
    "node-pool": _pool_hits,
    "node": _node_hits,
    "eviction": _eviction_hits,
}
