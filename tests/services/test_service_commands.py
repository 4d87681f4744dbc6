"""Tests for `berth service` with the REST API in this process."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.client import Client, Settings
from projects.models import Autoscaler
from tests.api.conftest import Caller
from tests.cli.terminal import Terminal
from tests.client.stub_server import HERE, StubServer
from tests.services.stage import ServiceStage

SOURCE = """\
enabled: true
min_engines: 2
max_engines: 8
scale_out_policy:
  token_usage_threshold: 0.80
  max_delta: 2
scale_in_policy:
  token_usage_threshold: 0.25
"""


class InProcessServer(StubServer, httpx.BaseTransport):
    """A transport that passes the client's requests to the server in this process."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def client(self, settings: Settings = HERE, **options: Any) -> Client:
        return Client(settings, http=self, sleep=lambda seconds: None)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        forwarded = ("idempotency-key", "if-match")
        headers = {name: value for name, value in request.headers.items() if name in forwarded}
        body = request.read()
        answer = self.caller(request.method, request.url.raw_path.decode(), body or None, headers=headers)
        return httpx.Response(answer.status_code, content=answer.content, headers=dict(answer.items()))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    monkeypatch.setenv("BERTH_CONFIG", str(tmp_path / "config.toml"))
    return Terminal(monkeypatch)


def test_service_is_listed_described_and_scaled_with_commands(
    stage: ServiceStage, dave: Caller, terminal: Terminal
) -> None:
    service, server = stage.serve(engines=2), InProcessServer(dave)
    scaled = terminal.run("service", "scale-out", "vision/chat", "3", server=server)
    assert (scaled.exit_code, "Scale-out request accepted" in scaled.stdout) == (0, True)
    assert "scale_out PENDING" in terminal.run("service", "list", server=server).stdout
    stage.finish(service.requests.get())
    assert terminal.run("service", "engines", "chat", server=server).stdout.count("ACTIVE") == 3
    dry_run = terminal.run("service", "scale-in", "chat", "2", "--dry-run", server=server).stdout
    assert "engine_2" in dry_run
    history = json.loads(terminal.run("service", "history", "chat", "-o", "json", server=server).stdout)
    assert [one["status"] for one in history] == ["ACTIVE"]
    described = terminal.run("service", "describe", "chat", server=server).stdout
    assert "3 of 3 active" in described
    rejected = terminal.run("service", "scale-in", "chat", "1", server=server)
    assert (rejected.exit_code, rejected.stderr.count("\n")) == (2, 1)
    assert "below the number of initial engines" in rejected.stderr


def test_scale_out_can_be_cancelled_with_a_command(
    stage: ServiceStage, dave: Caller, terminal: Terminal
) -> None:
    service, server = stage.serve(), InProcessServer(dave)
    request = stage.scale_out(service, num_replicas=2)
    assert "PENDING" in terminal.run("service", "cancel", "chat", "--dry-run", server=server).stdout
    cancelled = terminal.run("service", "cancel", "chat", str(request.pk), server=server)
    assert cancelled.stdout == f"{request.pk} is CANCELLED\n"


@pytest.mark.shows("RLX-63", "RLX-90", "RLX-94")
def test_autoscale_command_reads_yaml_and_keeps_other_defaults(
    stage: ServiceStage, dave: Caller, terminal: Terminal, tmp_path: Path
) -> None:
    service, server = stage.submit(), InProcessServer(dave)
    file = tmp_path / "my_autoscaler.yaml"
    file.write_text(SOURCE)
    assert not Autoscaler.objects.get(service=service).enabled
    applied = terminal.run("service", "autoscale", "chat", "-f", str(file), server=server)
    assert (applied.exit_code, "token_usage_high" in applied.stdout) == (0, True)
    row = Autoscaler.objects.get(service=service)
    assert row.enabled
    assert row.settings["scale_out_policy"]["queue_depth_per_engine"] == 10
    assert row.settings["scale_in_policy"]["token_usage_threshold"] == 0.25
    terminal.run("service", "autoscale", "chat", "--off", server=server)
    row.refresh_from_db()
    assert (row.enabled, row.settings["max_engines"]) == (False, 8)
    file.write_text("max_engine: 3\n")
    rejected = terminal.run("service", "autoscale", "chat", "-f", str(file), server=server)
    assert (rejected.exit_code, "max_engines" in rejected.stderr) == (2, True)
