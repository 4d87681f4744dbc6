"""The cluster screen of `berth top`."""

from typing import Any

from textual.widgets import DataTable, Static

from berth.cli.text import now
from berth.cli.top.cluster import ClusterSnapshot, NodeRow, PoolRow, Sort, WorkloadRow, headline, look
from berth.cli.top.cluster_app import ClusterTop
from berth.client import Unreachable
from berth.client.models.pools import Node, NodePool
from berth.client.models.usage import Use
from berth.client.models.workloads import Workload
from tests.client.desk import Desk, page, workload

USE = {
    "allocated": {"gpu": 4, "cpu": 8, "memory_mib": 16384, "gpu_memory_mib": 0},
    "used": {"gpu": 1, "cpu": 6.5, "memory_mib": 8192, "gpu_memory_mib": None},
    "gpus_measured": 4, "gpu_busy_percent": 25, "measured_at": None, "pods": 1, "pods_measured": 1,
}  # fmt: skip
ROOM = {"capacity": {"gpu": 8}, "free": {"gpu": 4}}
POOL = {"name": "train", "nodes_ready": 1, "nodes_desired": 2, **ROOM}
NODE = {"name": "train-0", "pool": "train", "state": "ready", **ROOM}


def seen(*work: WorkloadRow) -> ClusterSnapshot:
    use = Use.model_validate(USE)
    pool, node = NodePool.model_validate(POOL), Node.model_validate(NODE)
    return ClusterSnapshot(now(), use, [PoolRow(pool, use)], [NodeRow(node, None)], work, more=False)


def row(name: str, **fields: Any) -> WorkloadRow:
    return WorkloadRow(Workload.model_validate(workload(name, **fields)), Use.model_validate(USE), None)


def text_of(app: ClusterTop, name: str) -> list[list[str]]:
    table = app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


async def test_what_is_held_and_used_stands_side_by_side_and_s_sorts() -> None:
    asked: list[Sort] = []

    def looked(by: Sort) -> ClusterSnapshot:
        asked.append(by)
        return seen(row("\x1b[31mevil"), row("other", phase="pending"))

    app = ClusterTop(looked, title="here", every=3600, sort=Sort.ALLOCATED)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        first, second = text_of(app, "workloads")
        assert first[:6] == ["vision/\\x1b[31mevil", "running", "4/4", "25 %", "6.5/8", "8.0/16"]
        assert second[1] == "pending"
        assert text_of(app, "pools")[0][:4] == ["train", "1/2", "4/8", "25 %"]
        assert text_of(app, "nodes")[0][3:5] == ["4/8", "-"], "what was not measured is a dash"
        await pilot.press("s")
        await app.workers.wait_for_complete()
        assert asked == [Sort.ALLOCATED, Sort.USED]


async def test_a_server_that_goes_away_is_said_and_the_last_look_stays() -> None:
    looks: list[Any] = [seen(row("train")), Unreachable("cannot reach http://here")]

    def looked(_: Sort) -> ClusterSnapshot:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    app = ClusterTop(looked, title="here", every=3600, sort=Sort.ALLOCATED)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "cannot reach http://here" in str(app.query_one("#trouble", Static).render())
        assert len(text_of(app, "workloads")) == 1


def test_the_line_above_adds_it_all_up() -> None:
    told = headline(seen(row("a"), row("b", phase="pending"), row("c", phase="suspended")))
    assert told == "4 of 8 GPUs allocated (50%), 25 % busy; workloads: 1 running, 1 pending"


def test_whoever_uses_most_comes_first_and_equals_by_name() -> None:
    import httpx

    of = {name: workload(name) for name in ("b", "a", "idle")}
    used = [
        {"workload": name, "id": of[name]["id"], "project": "vision", "pool": "train", "idle_since": None,
         "now": {**USE, "used": {"gpu": gpus}}}
        for name, gpus in (("b", 2), ("a", 2), ("idle", 0))
    ]  # fmt: skip
    whole = httpx.Response(
        200, json={"now": USE, "pools": [{"pool": "train", "nodes": 1, "gpus": 8, "now": USE}], "hours": []}
    )
    desk = Desk(whole, page([]), page(used), page([NODE]), page([of["idle"], of["b"], of["a"]]), page([POOL]))
    found = look(desk.client(), None, None, Sort.USED)
    assert [each.workload.name for each in found.workloads] == ["a", "b", "idle"]
    assert found.pools[0].use is not None
    assert found.nodes[0].use is None
