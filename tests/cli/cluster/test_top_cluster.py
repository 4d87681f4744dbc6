"""Tests for the cluster screen of `berth top`."""

from typing import Any

from textual.widgets import DataTable, Static

from berth.cli.printing.text import utc_now
from berth.cli.top.cluster import (
    ClusterSnapshot,
    NodeRow,
    PoolRow,
    Sort,
    WorkloadRow,
    fetch_snapshot,
    headline,
)
from berth.cli.top.cluster_app import ClusterTop
from berth.client import Unreachable
from berth.client.models.nodes import Node
from berth.client.models.pools import NodePool
from berth.client.models.usage import Utilization
from berth.client.models.workloads import Workload
from tests.client.stub_server import TIME, StubServer, page, workload

UTILIZATION = {
    "allocated": {"gpu": 4, "cpu": 8, "memory_mib": 16384, "gpu_memory_mib": 0},
    "used": {"gpu": 1, "cpu": 6.5, "memory_mib": 8192, "gpu_memory_mib": None},
    "gpus_measured": 4, "gpu_busy_percent": 25, "measured_at": None, "pods": 1, "pods_measured": 1,
}  # fmt: skip
CREATED = {"capacity": {"gpu": 8}, "free": {"gpu": 4}, "created_at": TIME}
POOL = {"name": "train", "nodes_ready": 1, "nodes_desired": 2, "updated_at": TIME, **CREATED}
NODE = {"name": "train-0", "pool": "train", "state": "ready", "since": TIME, **CREATED}


def cluster_snapshot(*work: WorkloadRow) -> ClusterSnapshot:
    use = Utilization.model_validate(UTILIZATION)
    pool, node = NodePool.model_validate(POOL), Node.model_validate(NODE)
    return ClusterSnapshot(utc_now(), use, [PoolRow(pool, use)], [NodeRow(node, None)], work, more=False)


def row(name: str, **fields: Any) -> WorkloadRow:
    return WorkloadRow(
        Workload.model_validate(workload(name, **fields)), Utilization.model_validate(UTILIZATION), None
    )


def table_text(app: ClusterTop, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


async def test_allocated_and_used_resources_are_shown_side_by_side() -> None:
    sorts: list[Sort] = []

    def snapshot(by: Sort) -> ClusterSnapshot:
        sorts.append(by)
        return cluster_snapshot(row("\x1b[31mevil"), row("other", phase="pending"))

    app = ClusterTop(snapshot, title="here", every=3600, sort=Sort.ALLOCATED)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        first, second = table_text(app, "workloads")
        assert first[:6] == ["vision/\\x1b[31mevil", "running", "4/4", "25%", "6.5/8", "8.0/16"]
        assert second[1] == "pending"
        assert table_text(app, "pools")[0][:4] == ["train", "1/2", "4/8", "25%"]
        assert table_text(app, "nodes")[0][3:5] == ["4/8", "-"], "unmeasured values are shown as dashes"
        await pilot.press("s")
        await app.workers.wait_for_complete()
        assert sorts == [Sort.ALLOCATED, Sort.USED]


async def test_unreachable_server_is_reported_above_the_last_known_data() -> None:
    results: list[Any] = [cluster_snapshot(row("train")), Unreachable("cannot reach http://here")]

    def snapshot(_: Sort) -> ClusterSnapshot:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    app = ClusterTop(snapshot, title="here", every=3600, sort=Sort.ALLOCATED)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "cannot reach http://here" in str(app.query_one("#error", Static).render())
        assert len(table_text(app, "workloads")) == 1


def test_headline_sums_gpus_and_workloads() -> None:
    line = headline(cluster_snapshot(row("a"), row("b", phase="pending"), row("c", phase="suspended")))
    assert line == "4 of 8 GPUs allocated (50%), 25% used; workloads: 1 running, 1 pending"


def test_workloads_are_sorted_by_usage_then_name() -> None:
    import httpx

    named = {name: workload(name) for name in ("b", "a", "idle")}
    used = [
        {"workload": name, "id": named[name]["id"], "project": "vision", "pool": "train", "idle_since": None,
         "now": {**UTILIZATION, "used": {"gpu": gpus}}}
        for name, gpus in (("b", 2), ("a", 2), ("idle", 0))
    ]  # fmt: skip
    whole = httpx.Response(
        200,
        json={
            "now": UTILIZATION,
            "pools": [{"pool": "train", "nodes": 1, "gpus": 8, "now": UTILIZATION}],
            "hours": [],
        },
    )
    server = StubServer(
        whole,
        page([]),
        page(used),
        page([NODE]),
        page([named["idle"], named["b"], named["a"]]),
        page([POOL]),
    )
    latest = fetch_snapshot(server.client(), None, None, Sort.USED)
    assert [row.workload.name for row in latest.workloads] == ["a", "b", "idle"]
    assert latest.pools[0].use is not None
    assert latest.nodes[0].use is None
