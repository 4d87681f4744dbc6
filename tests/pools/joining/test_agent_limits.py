"""Tests for time limits while a machine's agent stops or upgrades a node and sends no reports."""

import io
import subprocess
import time
from typing import Any

import pytest

from pools.joining.agent import scripts, server, upgrade
from pools.joining.agent.scripts import StartScript
from pools.joining.agent.server import Server
from pools.joining.agent.upgrade import Upgrade
from pools.runtimes.ray.scripts import upgrade_script

GONE_SECONDS = 180


@pytest.fixture(autouse=True)
def state(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (scripts, upgrade):
        monkeypatch.setattr(module, "STATE", str(tmp_path))
    monkeypatch.setattr(scripts, "NODE_FILE", str(tmp_path / "node.json"))


def test_stop_and_upgrade_in_one_round_do_not_delay_the_next_report() -> None:
    longest = scripts.CHECK_SECONDS + scripts.STOP_SECONDS + upgrade.UPGRADE_SECONDS
    assert longest < GONE_SECONDS
    assert "--max-time 60 " in upgrade_script()


def test_hanging_stop_script_times_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scripts, "STOP_SECONDS", 0.2)
    start = StartScript()
    start.answer = {"node": "metal-0", "ordinal": 0, "stop": "exec sleep 60"}
    start.stop()
    assert start.answer == {}
    assert "metal-0: stop script did not finish within" in capsys.readouterr().err


@pytest.mark.heavy
def test_node_upgrade_times_out_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    answer: dict[str, object] = {"node": "metal-0", "ordinal": 0}
    with pytest.raises(subprocess.TimeoutExpired):
        Upgrade(Server(""))._upgrade_node("exec sleep 60", answer, time.monotonic())


@pytest.mark.heavy
def test_slow_download_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opener:
        def open(self, url: str, timeout: float) -> io.BytesIO:
            return io.BytesIO(b"content")

    monkeypatch.setattr(server, "_make_opener", Opener)
    assert Server("https://berth").download("machines/agent", 10) == b"content"
    with pytest.raises(OSError, match="was not received within"):
        Server("https://berth").download("machines/agent", -1)
