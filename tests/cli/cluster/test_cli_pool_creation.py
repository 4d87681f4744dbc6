"""Tests for the output of `berth pool create`."""

import httpx

from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, page

TIME = "2026-06-01T00:00:00Z"
NOTHING = {"gpu": 0, "cpu": 0, "memory_mib": 0}
BARE = {
    "name": "train", "provider": "local", "runtime": "local", "nodes_min": 1, "nodes_max": None,
    "ready_threshold": None, "nodes_desired": 1, "nodes_ready": 0, "nodes_pending": 0, "nodes_draining": 0,
    "capacity": NOTHING, "free": NOTHING, "gpus_per_node": 0, "version": 1, "state": "active",
    "created_at": TIME, "updated_at": TIME,
}  # fmt: skip


def test_creation_without_options_suggests_how_to_set_gpus_and_node_limits(terminal: Terminal) -> None:
    created = terminal.run("pool", "create", "train", server=StubServer(httpx.Response(201, json=BARE)))
    assert created.stdout == (
        "train: active, 1 node desired, 1, fixed\n"
        "Its nodes have no GPUs. To change that, run: berth pool edit train --gpus-per-node 8\n"
        "It always has 1 node. To scale it with demand, run: berth pool edit train --nodes 0:4\n"
    )
    listed = terminal.run("pool", "list", server=StubServer(page([BARE]))).stdout.splitlines()
    columns = dict(zip(listed[0].split(), listed[1].split(), strict=False))
    assert (columns["MIN"], columns["MAX"]) == ("1", "1")
