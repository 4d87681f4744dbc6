"""Tests for `berth pool create` with a preview."""

import json
from pathlib import Path
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


def test_node_preview_is_printed_before_creation(terminal: Terminal) -> None:
    server = StubServer(preview(), pool())
    result = terminal.run(*AWS, server=server)
    assert result.exit_code == 0
    assert server.calls == ["POST /api/v1/node-pools?dry_run=true", "POST /api/v1/node-pools"]
    assert "gpu-1" in result.stdout
    assert "the node is cordoned in Kubernetes" in result.stdout
    assert "1 of 2 nodes can be used: 8 GPUs, 6 of them free." in result.stdout


def test_preview_errors_prevent_pool_creation_without_the_yes_option(terminal: Terminal) -> None:
    server = StubServer(preview(ERROR))
    result = terminal.run(*AWS, server=server)
    assert (result.exit_code, len(server.calls)) == (1, 1)
    assert "error: The account may not list pods. Add the rule." in result.stdout
    assert "was not created" in result.stderr
    forced = terminal.run(*AWS, "--yes", server=StubServer(preview(ERROR), pool()))
    assert forced.exit_code == 0
    assert "error: The account may not list pods. Add the rule." in forced.stderr


def test_declined_creation_creates_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.cli.commands.infrastructure.previews.is_interactive", lambda: True)
    server = StubServer(preview(ERROR), pool())
    assert terminal.run(*AWS, server=server, input="\n").exit_code != 0
    assert server.calls == ["POST /api/v1/node-pools?dry_run=true"]
    server = StubServer(preview(ERROR), pool())
    assert terminal.run(*AWS, server=server, input="y\n").exit_code == 0
    assert len(server.calls) == 2


def test_keys_of_hosts_omitted_from_the_preview_are_also_pinned(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.cli.options.ssh_hosts.PREVIEWED_HOSTS", 2)
    (tmp_path / "hosts.yaml").write_text("[10.0.0.1, 10.0.0.2, {address: 10.0.0.3, name: last}]")
    keys = [f"ssh-ed25519 {letter * 8}" for letter in "ABC"]
    empty = {"total": HAS, "free": HAS, "details": "", "gpu_model": ""}
    first, second, third = ({**empty, "name": key[-1], "host_key": key} for key in keys)
    server = StubServer(
        preview(nodes=[first, second]), preview(nodes=[third]), preview(nodes=[]), pool()
    )  # fmt: skip
    words = ("pool", "create", "metal", "--provider", "ssh", "--hosts", str(tmp_path / "hosts.yaml"))
    assert terminal.run(*words, "--accept-host-keys", server=server).exit_code == 0
    previewed = [json.loads(request.content)["provider_settings"]["hosts"] for request in server.requests]
    assert [len(hosts) for hosts in previewed] == [2, 1, 3, 3]
    assert [host["host_key"] for host in previewed[-1]] == keys


def test_dry_run_prints_only_the_preview(terminal: Terminal) -> None:
    server = StubServer(preview(ERROR))
    result = terminal.run(*AWS, "--dry-run", "-o", "json", server=server)
    assert json.loads(result.stdout)["nodes_usable"] == 1
    assert server.calls == ["POST /api/v1/node-pools?dry_run=true"]
    empty = StubServer(preview(source="", nodes=[], nodes_total=0))
    assert "does not support previews" in terminal.run(*AWS, "--dry-run", server=empty).stdout
