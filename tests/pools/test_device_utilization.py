"""Tests for GPU utilization, read from a fake nvidia-smi."""

import os
from pathlib import Path

import pytest

from pools.runtimes.base import DeviceUsage
from pools.runtimes.device_usage import DeviceProbe, parse_output
from pools.runtimes.local import LocalRuntime

OUTPUT = """1, GPU-bbbb, 97, 40537
0, GPU-aaaa, 0, 4
2, GPU-cccc, [N/A], [N/A]
"""


def probe(place: Path, *lines: str) -> DeviceProbe:
    place.write_text("\n".join(("#!/bin/sh", *lines, "")))
    place.chmod(0o700)
    return DeviceProbe([str(place)])


def test_each_gpu_has_utilization_and_used_memory(tmp_path: Path) -> None:
    probed = probe(tmp_path / "smi", f'echo "$@" > {tmp_path}/arguments', f"cat <<E\n{OUTPUT}E")
    assert probed.measure() == (
        DeviceUsage(0, "GPU-aaaa", 0, 4),
        DeviceUsage(1, "GPU-bbbb", 970, 40537),
        DeviceUsage(2, "GPU-cccc", None, None),
    )
    arguments = (tmp_path / "arguments").read_text()
    assert arguments == ("--query-gpu=index,uuid,utilization.gpu,memory.used --format=csv,noheader,nounits\n")


def test_messages_in_driver_output_are_ignored() -> None:
    assert parse_output("No devices were found\n") == ()
    assert parse_output("warning: infoROM is corrupted, at gpu 0000:3B:00.0\n0, GPU-a, 5, 6\n") == (
        DeviceUsage(0, "GPU-a", 50, 6),
    )


@pytest.mark.parametrize("script", ["exit 9", "echo 0, GPU-a, 5, 6; exit 1"])
def test_failed_driver_query_is_not_retried_immediately(tmp_path: Path, script: str) -> None:
    probed = probe(tmp_path / "smi", f"echo x >> {tmp_path}/count", script)
    assert probed.measure() == () == probed.measure()
    assert (tmp_path / "count").read_text() == "x\n"


def test_hanging_driver_query_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pools.runtimes.device_usage.PROBE_TIMEOUT_SECONDS", 0.05)
    probed = probe(tmp_path / "smi", f"echo $$ > {tmp_path}/pid", "exec sleep 60")
    assert probed.measure() == ()


def test_machine_without_a_driver_reports_no_utilization(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "run", anchor="", probe=DeviceProbe([str(tmp_path / "missing")]))
    assert runtime.measure([], ["i-0"]).devices == {}


def test_local_nodes_report_the_utilization_of_the_machines_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe(tmp_path / "smi", "echo 0, GPU-a, 5, 6")
    monkeypatch.setenv("BERTH_GPU_PROBE", f"{tmp_path}/smi --quietly")
    runtime = LocalRuntime(tmp_path / "run", anchor="")
    devices = runtime.measure([], ["i-0", "i-1"]).devices
    assert devices == dict.fromkeys(("i-0", "i-1"), (DeviceUsage(0, "GPU-a", 50, 6),))
    assert os.environ["BERTH_GPU_PROBE"]


def test_simulated_gpus_are_measured_only_by_a_configured_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, GPU-a, 90, 100'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert DeviceProbe().measure()
    monkeypatch.setenv("BERTH_DECLARED_GPUS", "8")
    assert not DeviceProbe().measure()
    monkeypatch.setenv("BERTH_GPU_PROBE", "nvidia-smi")
    assert DeviceProbe().measure()
