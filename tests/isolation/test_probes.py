"""Tests for the pods that test the isolation of a machine."""

import os
import shutil
from pathlib import Path

import pytest

from pools.runtimes.base import RuntimeFailure
from pools.runtimes.enclosure.probe import probe_directory
from pools.runtimes.local import LocalRuntime
from tests.contracts.pods import LocalStage, ended, order


def test_later_probe_deletes_the_directory_of_a_killed_probe(tmp_path: Path) -> None:
    stray, recent = tmp_path / ".probe-stray", tmp_path / ".probe-recent"
    for directory in (stray, recent):
        (directory / "work").mkdir(parents=True)
    os.utime(stray, (0, 0))
    with probe_directory(tmp_path) as directory:
        assert directory.is_dir()
        assert {path.name for path in tmp_path.iterdir()} == {recent.name, directory.name}


@pytest.fixture
def bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: LocalStage) -> Path:
    """Return a file that contains a number N. bubblewrap is killed the first N times that it starts."""
    kills, program = tmp_path / "kills", tmp_path / "programs" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nread -r number < {kills}\n[ "$number" = 0 ] && exec {shutil.which("bwrap")} "$@"\n'
        f"echo $((number - 1)) > {kills}\nkill -KILL $$\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return kills


def test_killed_isolation_test_is_repeated(tmp_path: Path, bubblewrap: Path, stage: LocalStage) -> None:
    bubblewrap.write_text("2\n")
    fresh = LocalRuntime(tmp_path / "home" / "fresh", anchor="")
    assert fresh.isolation == stage.runtime.isolation
    assert bubblewrap.read_text() == "0\n"


def test_pods_wait_rather_than_start_with_weaker_isolation(
    tmp_path: Path, bubblewrap: Path, stage: LocalStage
) -> None:
    """A machine that kills the probes, for example for lack of memory, may offer isolation later."""
    bubblewrap.write_text("1000\n")
    fresh = LocalRuntime(tmp_path / "home" / "fresh", anchor="")
    with pytest.raises(RuntimeFailure, match=r"could not be tested: .*bubblewrap was killed"):
        fresh.start(order("p-1", "id", "-u"))
    bubblewrap.write_text("0\n")
    fresh.start(order("p-1", "id", "-u"))
    assert ended(fresh, "p-1").exit_code == 0
    assert fresh.isolation == stage.runtime.isolation
