"""Tests for pod limits with the control groups of this machine."""

import os
import re
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from pools.runtimes.base import PodCause, PodState, PodUsage
from pools.runtimes.cgroup_usage import cgroup_usage
from pools.runtimes.enclosure.limits import MIB, PROCESSES_MAX
from pools.runtimes.shim.entry import OPEN_FILES_HARD, OPEN_FILES_SOFT
from pools.runtimes.shim.limits import cgroups
from pools.runtimes.shim.limits.cgroups import CPU, MEMORY, PROCESSES, CannotLimit, Cgroups
from pools.runtimes.shim.records import read_fields
from tests.contracts.pods import LocalStage, ended, kill, order, poll_until, running

FILL = "python3 -c \"x = b'x' * (400 << 20)\""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    stage = LocalStage(tmp_path / "home" / "run")
    if not {MEMORY, CPU, PROCESSES} <= set(stage.runtime.isolation.limits):
        assert stage.runtime.isolation.limits_obstacle
        pytest.skip(stage.runtime.isolation.limits_obstacle)
    yield stage
    stage.sweep()


def groups(stage: LocalStage, pod_id: str) -> list[Path]:
    fields = read_fields(f"{stage.root}/pods/{pod_id}/cgroups")
    assert fields
    return [Path(path) for _, path in fields]


def test_oom_killed_pod_reports_limit_and_peak(stage: LocalStage) -> None:
    stage.runtime.start(order("p-1", "sh", "-c", f"exec {FILL}", memory_limit_mib=64))
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.signal) == (PodCause.OUT_OF_MEMORY, 9)
    assert report.message == "killed at its memory limit: limit 64 MiB, peak 64 MiB"
    assert not any(group.exists() for group in groups(stage, "p-1"))


def test_oom_kill_is_recognized_from_the_shells_exit_status(stage: LocalStage) -> None:
    stage.runtime.start(order("p-1", "sh", "-c", f"{FILL}; exit $?", memory_limit_mib=64))
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.exit_code) == (PodCause.OUT_OF_MEMORY, 137)


def test_killed_child_process_is_reported_if_the_command_continues(stage: LocalStage) -> None:
    stage.runtime.start(order("p-1", "sh", "-c", f"{FILL}; exit 0", memory_limit_mib=64))
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.exit_code, report.memory_peak_mib) == (PodCause.NONE, 0, 64)
    assert report.message.startswith("1 process of the pod had been killed at its memory limit: limit 64 MiB")


def test_shared_memory_counts_as_memory(stage: LocalStage) -> None:
    # The full /dev/shm stays charged, so the kernel may also kill the shell.
    fill = "head -c 200M /dev/zero > /dev/shm/file; exit $?"
    stage.runtime.start(order("p-1", "sh", "-c", fill, memory_limit_mib=64))
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.OUT_OF_MEMORY
    assert report.message.startswith("killed at its memory limit: limit 64 MiB")


def test_fork_bomb_is_stopped_by_the_process_limit(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.runtimes.enclosure.limits.PROCESSES_MAX", 20)
    fork = "import os\nn = 0\nwhile os.fork(): n += 1"
    stage.runtime.start(order("p-1", "python3", "-c", f"{fork}\nimport signal; signal.pause()"))
    assert ended(stage.runtime, "p-1").exit_code == 1
    assert b"BlockingIOError" in stage.runtime.read_log("p-1", 0, 10_000).data
    assert PROCESSES_MAX > 1000, "ordinary training must not notice the limit"


def settings(stage: LocalStage, pod_id: str) -> dict[str, str]:
    return {
        file.name: file.read_text().strip()
        for group in groups(stage, pod_id)
        for file in group.iterdir()
        if file.name in ("cpu.cfs_quota_us", "cpu.max", "memory.limit_in_bytes", "memory.max")
    }


def test_cpu_limit_is_enforced_and_pods_without_limits_are_only_measured(stage: LocalStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    unlimited = settings(stage, "p-1")
    assert unlimited.get("cpu.cfs_quota_us", "-1") == "-1"
    assert unlimited.get("cpu.max", "max").startswith("max")
    assert unlimited.get("memory.max", "max") == "max"
    assert int(unlimited.get("memory.limit_in_bytes", str(2**62))) > 2**40
    changed = stage.long("p-2")
    stage.runtime.start(order("p-2", *changed.command, cpu_limit_milli=1500, memory_limit_mib=100))
    running(stage.runtime, "p-2")
    assert settings(stage, "p-2") in (
        {"cpu.cfs_quota_us": "150000", "memory.limit_in_bytes": str(100 * MIB)},
        {"cpu.max": "150000 100000", "memory.max": str(100 * MIB)},
    )


def test_usage_from_control_groups_includes_shared_memory(stage: LocalStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    stage._do("p-1", "head -c 48M /dev/zero > /dev/shm/limits-test; echo written")
    poll_until(lambda: b"written" in stage.runtime.read_log("p-1", 0, 100).data)
    stage.work("p-1")
    usage = stage.runtime.measure(["p-1"], []).pods["p-1"]
    stage._do("p-1", "rm -f /dev/shm/limits-test")
    assert 48 <= usage.memory_mib < 80
    assert 0.0 < usage.cpu_seconds < 60.0


def test_child_process_killed_at_the_memory_limit_of_a_running_pod_causes_a_warning(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.runtime.start(replace(stage.long("p-1"), memory_limit_mib=64))
    running(stage.runtime, "p-1")
    stage._do("p-1", FILL)
    report = poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"], lambda each: each.warnings > 0)
    assert (report.state, report.warnings) == (PodState.RUNNING, 1)
    assert report.warning == "1 process was killed at the memory limit: limit 64 MiB, peak 64 MiB"
    stage.end_pod("p-1", 0)
    assert ended(stage.runtime, "p-1").cause is PodCause.NONE


@pytest.mark.heavy
def test_pod_that_fills_its_workspace_causes_a_warning_and_is_then_stopped(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.runtimes.enclosure.limits.DISK_SECONDS", 0.01)
    stage.runtime.start(replace(stage.long("p-1"), workspace_limit_mib=20))
    running(stage.runtime, "p-1")
    stage._do("p-1", 'head -c 19M /dev/zero > "$BERTH_WORKSPACE/a"')
    report = poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"], lambda each: each.warnings > 0)
    nearly_full = r"the workspace is nearly full: limit 20 MiB, used 1[89] MiB"
    assert re.fullmatch(nearly_full, report.warning), report.warning  # the file may be incomplete
    stage._do("p-1", 'ln "$BERTH_WORKSPACE/a" "$BERTH_WORKSPACE/b"; head -c 2M /dev/zero > "$TMPDIR/c"')
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.WORKSPACE_FULL
    assert re.fullmatch(r"the workspace is full: limit 20 MiB, used 2[01] MiB", report.message), (
        report.message
    )


def test_soft_limit_on_open_files_can_be_raised_to_the_hard_limit(stage: LocalStage) -> None:
    _, own = resource.getrlimit(resource.RLIMIT_NOFILE)
    stage.runtime.start(order("p-1", "sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -n $(ulimit -Hn)"))
    assert ended(stage.runtime, "p-1").exit_code == 0
    hard = OPEN_FILES_HARD if own == resource.RLIM_INFINITY else min(own, OPEN_FILES_HARD)
    soft, inside = stage.runtime.read_log("p-1", 0, 100).data.split()
    assert (int(soft), int(inside)) == (min(OPEN_FILES_SOFT, hard), hard)


def test_command_starts_inside_its_control_groups(stage: LocalStage) -> None:
    # The process that starts the command has joined the groups, so the first instruction is limited.
    limits = {"memory_limit_mib": 64, "cpu_limit_milli": 500}
    stage.runtime.start(order("p-1", "cat", "/proc/self/cgroup", **limits))
    ended(stage.runtime, "p-1")
    lines = stage.runtime.read_log("p-1", 0, 10_000).data.decode().splitlines()
    paths = set(groups(stage, "p-1"))
    joined = [line for line in lines if any(line.endswith(f"/{path.name}") for path in paths)]
    assert len(joined) == len(paths)


def test_control_groups_of_a_killed_shim_are_removed(stage: LocalStage) -> None:
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    shim = stage.runtime._pod_dir("p-1").shim_pid()
    paths = groups(stage, "p-1")
    assert all(path.exists() for path in paths)
    kill(shim)
    assert ended(stage.runtime, "p-1").cause is PodCause.LOST
    shared = stage.runtime._pod_dir("p-1").read("order").get("shared_memory")
    stage.runtime.forget("p-1")
    assert not shared or not Path(shared).exists()
    assert not any(path.exists() for path in paths)


def test_control_group_is_removed_once_its_killed_process_has_ended(stage: LocalStage) -> None:
    group = Cgroups(f"berth-test-{os.getpid()}", {PROCESSES: 5})
    group.locate()
    group.create()
    (path,) = group.paths.values()
    with subprocess.Popen(["sleep", "60"]) as child:
        Path(path, "cgroup.procs").write_text(str(child.pid))
        Timer(0.2, child.kill).start()
        group.remove()
    assert not Path(path).exists()


# --- machines that cannot enforce limits


@pytest.fixture
def without_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate a machine without writable control groups."""
    monkeypatch.setattr(cgroups, "_ROOT", "/proc/no-such-directory")


@pytest.mark.usefixtures("without_control_groups")
def test_pod_with_an_unenforceable_limit_fails_with_the_reason(tmp_path: Path) -> None:
    stage = LocalStage(tmp_path / "run")
    assert stage.runtime.isolation.limits == ()
    stage.runtime.start(order("p-1", "true", memory_limit_mib=64))
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert "this node cannot enforce the memory limit" in report.message
    assert "The agent cannot create control groups: No such file" in report.message
    stage.runtime.start(order("p-2", "true"))
    assert ended(stage.runtime, "p-2").exit_code == 0


@pytest.mark.usefixtures("without_control_groups")
def test_unenforceable_default_limit_of_a_pool_does_not_prevent_a_start(tmp_path: Path) -> None:
    stage = LocalStage(tmp_path / "run")
    limits = {"memory_limit_mib": 64, "cpu_limit_milli": 500}
    stage.runtime.start(order("p-1", "true", **limits, optional_limits=("memory", "cpu")))
    assert ended(stage.runtime, "p-1").exit_code == 0
    stage.runtime.start(order("p-2", "true", **limits, optional_limits=("memory",)))
    assert "cannot enforce the cpu limit" in ended(stage.runtime, "p-2").message


@pytest.mark.usefixtures("without_control_groups")
def test_limits_are_ignored_if_berth_limits_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_LIMITS", "off")
    stage = LocalStage(tmp_path / "run")
    stage.runtime.start(order("p-1", "true", memory_limit_mib=64, cpu_limit_milli=500))
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert stage.runtime.isolation.limits_obstacle == "BERTH_LIMITS is off."


# --- control groups version 2, whose files are simulated


def test_cgroup_v2_pod_groups_are_siblings_of_the_shims_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice_ = tmp_path / "app.slice"
    (slice_ / "berth.service").mkdir(parents=True)
    (slice_ / "cgroup.subtree_control").write_text("memory pids")
    own = tmp_path / "own"
    own.write_text("0::/app.slice/berth.service\n")
    monkeypatch.setattr(cgroups, "_ROOT", str(tmp_path))
    monkeypatch.setattr(cgroups, "_OWN_GROUPS", str(own))
    group = Cgroups("berth-p-1", {MEMORY: 64 * MIB, PROCESSES: 100, CPU: 500})
    group.locate()
    group.create()
    path = slice_ / "berth-p-1"
    assert set(group.paths.values()) == {str(path)}
    assert (path / "memory.max").read_text() == str(64 * MIB)
    assert (path / "cpu.max").read_text() == "50000 100000"
    assert (path / "pids.max").read_text() == "100"
    assert (slice_ / "cgroup.subtree_control").read_text() == "+cpu", "the missing controller is enabled"
    (path / "memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    (path / "memory.peak").write_text(str(64 * MIB))
    assert (group.memory_kills(), group.memory_peak()) == (3, 64 * MIB)


def test_control_group_that_cannot_be_created_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_ROOT", str(tmp_path / "none"))
    group = Cgroups("berth-p-1", {MEMORY: MIB})
    group.locate()
    with pytest.raises(CannotLimit, match="No such file or directory"):
        group.create()
    assert not Path(group.paths[MEMORY]).exists()


def test_memory_usage_in_cgroup_v2_is_the_working_set(tmp_path: Path) -> None:
    group = tmp_path / "berth-p-1"
    group.mkdir()
    groups = {MEMORY: str(group), CPU: str(group), PROCESSES: str(group)}
    assert cgroup_usage(groups) is None, "the kernel measures nothing"
    (group / "memory.current").write_text(f"{100 * MIB}\n")
    (group / "memory.stat").write_text(f"anon {60 * MIB}\ninactive_file {30 * MIB}\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert cgroup_usage(groups) == PodUsage(2.5, 70)
    assert cgroup_usage({PROCESSES: str(group)}) is None
