"""Tests of `berth pool create` with a preview."""

import json
from typing import Any

import httpx
import pytest

from tests.cli.cluster.test_cli_pools import HAS, pool
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer


def preview(*findings: dict[str, str], **fields: Any) -> httpx.Response:
    one = {"name": "gpu-0", "gpu_model": "H100", "total": HAS, "free": {**HAS, "gpu": 6.0}, "details": ""}
    two = {**one, "name": "gpu-1", "obstacle": "the node is cordoned in Kubernetes"}
    return httpx.Response(200, json={
        "source": "Kubernetes 1.30.0 at https://k8s", "nodes": [one, two], "nodes_total": 2,
        "nodes_usable": 1, "total": HAS, "free": {**HAS, "gpu": 6.0}, "findings": list(findings), **fields,
    })  # fmt: skip


AWS = ("pool", "create", "train", "--provider", "aws", "--nodes", "2")
ERROR = {"severity": "error", "message": "The account may not list pods.", "remedy": "Add the rule."}


def test_preview_of_nodes_precedes_creation(terminal: Terminal) -> None:
    server = StubServer(preview(), pool())
    result = terminal.run(*AWS, server=server)
    assert result.exit_code == 0
    assert server.calls == ["POST /api/v1/node-pools?dry_run=true", "POST /api/v1/node-pools"]
    assert "gpu-1" in result.stdout
    assert "the node is cordoned in Kubernetes" in result.stdout
    assert "1 of 2 nodes can be used: 8 GPUs, 6 of them free." in result.stdout


def test_errors_in_the_preview_stop_creation_unless_the_yes_option_is_set(terminal: Terminal) -> None:
    server = StubServer(preview(ERROR))
    result = terminal.run(*AWS, server=server)
    assert (result.exit_code, len(server.calls)) == (1, 1)
    assert "error: The account may not list pods. Add the rule." in result.stdout
    assert "was not created" in result.stderr
    assert terminal.run(*AWS, "--yes", server=(forced := StubServer(pool()))).exit_code == 0
    assert forced.calls == ["POST /api/v1/node-pools"]


def test_declined_creation_creates_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.cli.commands.infrastructure.previews.is_interactive", lambda: True)
    server = StubServer(preview(ERROR), pool())
    assert terminal.run(*AWS, server=server, input="\n").exit_code != 0
    assert server.calls == ["POST /api/v1/node-pools?dry_run=true"]
    server = StubServer(preview(ERROR), pool())
    assert terminal.run(*AWS, server=server, input="y\n").exit_code == 0
    assert len(server.calls) == 2


def test_dry_run_prints_only_the_preview(terminal: Terminal) -> None:
    server = StubServer(preview(ERROR))
    result = terminal.run(*AWS, "--dry-run", "-o", "json", server=server)
    assert json.loads(result.stdout)["nodes_usable"] == 1
    assert server.calls == ["POST /api/v1/node-pools?dry_run=true"]
    empty = StubServer(preview(source="", nodes=[], nodes_total=0))
    assert "nothing to check" in terminal.run(*AWS, "--dry-run", server=empty).stdout
