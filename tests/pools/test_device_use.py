"""GPU utilization from a program that prints what nvidia-smi prints."""

import os
from pathlib import Path

import pytest

from pools.runtimes.base import DeviceUse
from pools.runtimes.device_usage import DeviceProbe, read
from pools.runtimes.local import LocalRuntime

TOLD = """1, GPU-bbbb, 97, 40537
0, GPU-aaaa, 0, 4
2, GPU-cccc, [N/A], [N/A]
"""


def probe(place: Path, *lines: str) -> DeviceProbe:
    place.write_text("\n".join(("#!/bin/sh", *lines, "")))
    place.chmod(0o700)
    return DeviceProbe([str(place)])


def test_each_gpu_tells_how_busy_it_is_and_how_much_of_its_memory_is_taken(tmp_path: Path) -> None:
    asked = probe(tmp_path / "smi", f'echo "$@" > {tmp_path}/asked', f"cat <<E\n{TOLD}E")
    assert asked.look() == (
        DeviceUse(0, "GPU-aaaa", 0, 4),
        DeviceUse(1, "GPU-bbbb", 970, 40537),
        DeviceUse(2, "GPU-cccc", None, None),
    )
    question = (tmp_path / "asked").read_text()
    assert question == ("--query-gpu=index,uuid,utilization.gpu,memory.used --format=csv,noheader,nounits\n")


def test_remarks_among_the_lines_are_no_gpus() -> None:
    assert read("No devices were found\n") == ()
    assert read("warning: infoROM is corrupted, at gpu 0000:3B:00.0\n0, GPU-a, 5, 6\n") == (
        DeviceUse(0, "GPU-a", 50, 6),
    )


@pytest.mark.parametrize("script", ["exit 9", "echo 0, GPU-a, 5, 6; exit 1"])
def test_a_driver_that_fails_is_not_measured_and_not_asked_again_at_once(tmp_path: Path, script: str) -> None:
    asked = probe(tmp_path / "smi", f"echo x >> {tmp_path}/count", script)
    assert asked.look() == () == asked.look()
    assert (tmp_path / "count").read_text() == "x\n"


def test_a_driver_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pools.runtimes.device_usage.PATIENCE_SECONDS", 0.05)
    asked = probe(tmp_path / "smi", f"echo $$ > {tmp_path}/pid", "exec sleep 60")
    assert asked.look() == ()


def test_a_machine_without_a_driver_does_not_claim_that_nothing_is_used(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "run", anchor="", probe=DeviceProbe([str(tmp_path / "missing")]))
    assert runtime.measure([], ["i-0"]).devices == {}


def test_nodes_of_this_machine_see_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe(tmp_path / "smi", "echo 0, GPU-a, 5, 6")
    monkeypatch.setenv("BERTH_GPU_PROBE", f"{tmp_path}/smi --quietly")
    runtime = LocalRuntime(tmp_path / "run", anchor="")
    found = runtime.measure([], ["i-0", "i-1"]).devices
    assert found == dict.fromkeys(("i-0", "i-1"), (DeviceUse(0, "GPU-a", 50, 6),))
    assert os.environ["BERTH_GPU_PROBE"]
