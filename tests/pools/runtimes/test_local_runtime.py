"""Tests for pods that run as real processes, with all kinds of failures."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pools.runtimes import local_log, shims
from pools.runtimes.base import PodCause, PodState
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.processes import is_running, start_time
from tests.contracts.pods import LocalStage, alive, ended, kill, machine_pids, order, poll_until, running

ROOT = Path(__file__).resolve().parents[3]
FAILING_DISK = """import os, errno
failed, sync = [], os.fsync
def fail_once(fd):
    if not failed:
        failed.append(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(fd)
os.fsync = fail_once
"""
SHOW_ENV = "import json, os; print(json.dumps(dict(os.environ) | {'cwd': os.getcwd()}))"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    stage = LocalStage(tmp_path / "runtime")
    yield stage
    stage.sweep()


def shell(stage: LocalStage, script: str, **changes: object) -> None:
    stage.runtime.start(order("p-1", "sh", "-c", script, **changes))


def log_lines(stage: LocalStage, lines: int = 1) -> list[str]:
    """Return the first `lines` lines of the log once all of them are written."""
    read = lambda: stage.runtime.read_log("p-1", 0, 10**6).data  # noqa: E731
    return poll_until(read, lambda log: log.count(b"\n") >= lines).decode().splitlines()


# --- the environment of a pod


def test_pod_gets_its_devices_and_directories_but_no_server_secrets(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    stage.runtime.start(order("p-1", "python", "-c", SHOW_ENV, devices=("GPU-a", "GPU-c"), env={"RANK": "3"}))
    assert ended(stage.runtime, "p-1").exit_code == 0
    env = json.loads(log_lines(stage)[0])
    work = str(stage.root / "pods" / "p-1" / "work")
    workspace = str(stage.root / "workspaces" / "train-1")
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-c"
    assert (env["cwd"], env["BERTH_POD_DIR"], env["BERTH_WORKSPACE"]) == (work, work, workspace)
    assert (env["RANK"], env["PYTHONUNBUFFERED"]) == ("3", "1")
    assert env["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert "DATABASE_URL" not in env
    assert "BERTH_ANCHOR" not in env


def test_pod_without_devices_sees_no_gpu(stage: LocalStage) -> None:
    shell(stage, 'echo "devices: [$CUDA_VISIBLE_DEVICES]"')
    assert log_lines(stage) == ["devices: []"]


def test_pods_of_a_workload_share_a_persistent_directory(stage: LocalStage) -> None:
    shell(stage, 'echo kept > "$BERTH_WORKSPACE/state"')
    ended(stage.runtime, "p-1")
    stage.runtime.forget("p-1")
    stage.runtime.start(order("p-2", "sh", "-c", 'cat "$BERTH_WORKSPACE/state"'))
    ended(stage.runtime, "p-2")
    assert stage.runtime.tail_log("p-2", 1).data == b"kept\n"
    stage.runtime.drop_workspace("train-1")
    assert not (stage.root / "workspaces" / "train-1").exists()


def test_command_arguments_are_passed_unchanged(stage: LocalStage) -> None:
    arguments = ["two words", "", "ünï→\U0001f600", "$HOME;`x`", "line\nbreak", "a=b"]
    stage.runtime.start(order("p-1", "python", "-c", "import sys; print(sys.argv[1:])", *arguments))
    ended(stage.runtime, "p-1")
    assert log_lines(stage)[0] == repr(arguments)


@pytest.mark.parametrize(
    ("command", "changes", "expected"),
    [
        (("no-such-program",), {}, "no-such-program: No such file"),
        (("/etc/passwd",), {}, "/etc/passwd: Permission denied"),
        (("true",), {"working_dir": "/no/such/place"}, "/no/such/place: No such file"),
        ((), {"command": ()}, "command is empty"),
        (("true",), {"env": {"A": "x\0y"}}, "NUL"),
        (("true",), {"env": {"A=B": "x"}}, "variable"),
    ],
)
def test_failed_start_is_reported_with_the_reason(
    stage: LocalStage, command: tuple[str, ...], changes: dict[str, object], expected: str
) -> None:
    stage.runtime.start(order("p-1", *command, **changes))
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.exit_code) == (PodCause.START_FAILED, None)
    assert expected in report.message


# --- processes that end with the pod


def test_stop_kills_grandchildren_outside_the_process_group(stage: LocalStage) -> None:
    script = "sleep 1000 & echo $!; setsid sleep 1000 & sleep 0.1; pgrep -P $$ | tr '\\n' ' '; echo; wait"
    shell(stage, script, grace_seconds=30)
    lines = log_lines(stage, lines=2)
    pids = machine_pids(stage.pid("p-1"), {int(lines[0]), *map(int, lines[1].split())})
    assert len([pid for pid in pids if alive(pid)]) >= 2
    stage.runtime.stop("p-1", 30)
    assert ended(stage.runtime, "p-1").cause == PodCause.STOPPED
    assert not [pid for pid in pids if alive(pid)]


def test_daemons_that_ignore_sigterm_are_killed_after_the_grace_period(stage: LocalStage) -> None:
    # A daemon's parent has exited. The daemon has its own session and ignores the signal.
    daemon = "setsid sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 1; done\" &"
    shell(stage, f"sh -c '{daemon}'; sleep 1000")
    (pid,) = machine_pids(stage.pid("p-1"), {int(log_lines(stage)[0])})
    assert alive(pid)
    stage.runtime.stop("p-1", 0)
    ended(stage.runtime, "p-1")
    assert not alive(pid)


def test_leftover_processes_are_killed_when_the_command_ends(stage: LocalStage) -> None:
    shell(stage, 'mkfifo "$BERTH_POD_DIR/go"; setsid sleep 1000 & echo $!; . "$BERTH_POD_DIR/go"')
    (pid,) = machine_pids(stage.pid("p-1"), {int(log_lines(stage)[0])})
    (stage.root / "pods" / "p-1" / "work" / "go").write_text("exit 5")
    assert ended(stage.runtime, "p-1").exit_code == 5
    assert not alive(pid)


def test_child_process_may_use_the_whole_grace_period_after_its_shell_has_ended(stage: LocalStage) -> None:
    # With `sh -c "python train.py"`, SIGTERM kills the shell while the training is still saving its state.
    saves = "trap 'sleep 0.3; echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done"
    shell(stage, f'sh -c "{saves}" & wait')
    log_lines(stage)
    stage.runtime.stop("p-1", 30)
    assert ended(stage.runtime, "p-1").signal == 15
    assert "saved" in log_lines(stage)


# --- crashes


STARTER = """
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from pools.runtimes.local import LocalRuntime
from tests.contracts.pods import order
runtime = LocalRuntime(Path(sys.argv[1]), anchor="")
{before}
runtime.start(order("p-1", "sh", "-c", sys.argv[2]))
{after}
"""
KILL_STARTER = "import os; os.kill(os.getpid(), 9)"


def start_in_another_process(
    root: Path, script: str, before: str = "", after: str = ""
) -> "subprocess.Popen[bytes]":
    code = STARTER.format(before=before, after=after)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    return subprocess.Popen([sys.executable, "-c", code, str(root), script], env=env)


def test_pod_start_is_resumed_if_the_starting_process_was_killed(stage: LocalStage) -> None:
    dying = f"runtime._spawn_shim = lambda *_: exec({KILL_STARTER!r})"
    assert start_in_another_process(stage.root, "exit 4", before=dying).wait() == -signal.SIGKILL
    assert stage.runtime.list_pods() == ("p-1",)
    assert stage.runtime.get_reports(["p-1"])["p-1"].state == PodState.UNKNOWN
    stage.runtime.start(order("p-1", "sh", "-c", "exit 4"))
    assert ended(stage.runtime, "p-1").exit_code == 4


def test_pod_outlives_the_process_that_started_it(stage: LocalStage) -> None:
    starter = start_in_another_process(stage.root, LocalStage.SHELL, after=KILL_STARTER)
    assert starter.wait() == -signal.SIGKILL
    running(stage.runtime, "p-1")
    stage.end_pod("p-1", 9)
    assert ended(stage.runtime, "p-1").exit_code == 9


def test_concurrent_start_requests_start_only_one_pod(stage: LocalStage) -> None:
    starters = [start_in_another_process(stage.root, "echo ran; sleep 1000; :") for _ in range(4)]
    assert [starter.wait() for starter in starters] == [0, 0, 0, 0]
    log_lines(stage)
    stage.runtime.stop("p-1", 0)
    ended(stage.runtime, "p-1")
    assert log_lines(stage) == ["ran"]


def test_pod_is_lost_when_its_shim_is_killed(stage: LocalStage) -> None:
    shell(stage, "setsid sleep 1000 & echo $!; sleep 1000")
    pid = stage.pid("p-1")
    (grandchild,) = machine_pids(pid, {int(log_lines(stage)[0])})
    kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.exit_code, report.signal) == (PodCause.LOST, None, None)
    poll_until(lambda: not alive(pid) and not alive(grandchild))
    shell(stage, "echo again")
    assert stage.restart().get_reports(["p-1"])["p-1"] == report


def test_pod_ends_when_its_anchor_process_ends(tmp_path: Path, stage: LocalStage) -> None:
    anchor = subprocess.Popen(["sleep", "1000"])
    tied = LocalRuntime(stage.root, anchor=f"{anchor.pid}:{start_time(anchor.pid)}")
    saves = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    tied.start(order("p-1", "sh", "-c", saves))
    log_lines(stage)
    anchor.kill()
    anchor.wait()
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.exit_code) == (PodCause.HOST_STOPPED, 0)
    assert "saved" in log_lines(stage)
    tied.start(order("p-2", "true"))
    assert ended(stage.runtime, "p-2").cause == PodCause.HOST_STOPPED


def test_reused_process_id_is_not_mistaken_for_the_anchor_process(stage: LocalStage) -> None:
    tied = LocalRuntime(stage.root, anchor=f"{os.getpid()}:1")
    tied.start(order("p-1", "true"))
    assert ended(stage.runtime, "p-1").cause == PodCause.HOST_STOPPED


def test_pod_from_before_a_reboot_is_lost_despite_a_reused_process_id(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.runtimes.pod_dir.boot_id", lambda: "an earlier boot")
    monkeypatch.setattr(LocalRuntime, "_spawn_shim", lambda *_: None)
    shell(stage, "echo never")
    pod = stage.runtime._pod_dir("p-1")
    pod.write("status", [("state", "running"), ("pid", str(os.getpid())), ("started_at", "1.0")])
    monkeypatch.undo()
    assert stage.restart().get_reports(["p-1"])["p-1"].cause == PodCause.LOST
    shell(stage, "echo never")
    assert stage.runtime.read_log("p-1", 0, 10).data == b""


def test_pod_is_lost_if_a_power_failure_emptied_its_spec(stage: LocalStage) -> None:
    pod = stage.runtime._pod_dir("p-1")
    pod.create()
    (pod.path / "order").touch()
    shell(stage, "echo never")
    assert stage.runtime.get_reports(["p-1"])["p-1"].cause == PodCause.LOST
    assert stage.runtime.read_log("p-1", 0, 10).data == b""


def test_command_starts_only_after_its_pod_spec_is_durable(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A shim that cannot sync the pod's directory does not run the command.
    monkeypatch.setattr(shims, "SERVER_CODE", FAILING_DISK + shims.SERVER_CODE)
    shell(stage, "echo never")
    report = ended(stage.runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert report.message == "the pod spec could not be stored: Input/output error"
    assert stage.runtime.read_log("p-1", 0, 10).data == b""


def test_shim_start_failure_is_reported(stage: LocalStage, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("SERVER_CODE", "SHIM_CODE"):
        monkeypatch.setattr(shims, program, "raise SystemExit('broken installation')")
    shell(stage, "true")
    report = ended(stage.runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert "broken installation" in report.message


# --- logs


def test_log_over_its_size_limit_keeps_its_beginning_and_end(stage: LocalStage) -> None:
    stage.runtime = LocalRuntime(stage.root, anchor="", log_limit=1 << 20)
    count = 400_000
    shell(stage, f"seq {count}")
    assert ended(stage.runtime, "p-1").exit_code == 0
    whole = "".join(f"{n}\n" for n in range(1, count + 1)).encode()
    log = stage.root / "pods" / "p-1" / "log"
    assert log.stat().st_blocks * 512 <= (1 << 20) + 8192
    head = stage.runtime.read_log("p-1", 0, 10**9)
    assert head.data == whole[: 1 << 18]
    rest = stage.runtime.read_log("p-1", head.next_offset, 10**9)
    assert rest.offset == len(whole) - (1 << 19)
    assert (rest.data, rest.size, rest.complete) == (whole[rest.offset :], len(whole), True)
    assert stage.runtime.tail_log("p-1", 2).data == f"{count - 1}\n{count}\n".encode()
    everything = stage.runtime.tail_log("p-1", count)
    assert everything.offset == rest.offset
    stage.runtime.forget("p-1")
    assert stage.runtime.read_log("p-1", head.next_offset, 10).offset == rest.offset


def test_ended_pods_are_listed_until_they_are_forgotten(stage: LocalStage) -> None:
    names = [f"p-{n}" for n in range(20)]
    for n, name in enumerate(names):
        stage.runtime.start(order(name, "sh", "-c", f"exit {n}"))
    codes = [ended(stage.runtime, name).exit_code for name in names]
    assert codes == list(range(20))
    assert stage.runtime._shims.keys() <= set(names)
    for name in names:
        stage.runtime.forget(name)
    assert stage.runtime.list_pods() == ()


@pytest.mark.parametrize(("claimed", "counts_as"), [(10.0**13, "now"), (-(10.0**13), "1970")])
def test_invalid_checkpoint_time_is_clamped(stage: LocalStage, claimed: float, counts_as: str) -> None:
    saved = stage.root / "workspaces" / "w-1" / ".berth-checkpoint"
    saved.parent.mkdir(parents=True)
    saved.touch()
    os.utime(saved, (claimed, claimed))
    checkpoint = stage.runtime.checkpointed_at("w-1")
    assert checkpoint is not None
    if counts_as == "now":
        assert abs((datetime.now(UTC) - checkpoint).total_seconds()) < 60
    else:
        assert checkpoint.year == int(counts_as)


def test_tail_of_a_very_long_line_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
        file.seek(0, 2)
        file.write(b"the end")
    tail = local_log.tail_log(log, 10, ended=True)
    assert len(tail.data) == local_log.TAIL_MAX
    assert tail.data.endswith(b"the end")
    assert (tail.next_offset, tail.complete) == (tail.size, True)


# --- working directories


def test_pod_starts_in_its_named_workspace_if_it_exists_on_the_node(tmp_path: Path) -> None:
    (tmp_path / "shared" / "home" / "job-1").mkdir(parents=True)
    runtime = LocalRuntime(tmp_path / "run", shared=tmp_path / "shared")
    runtime.start(order("p-1", "pwd", start_in="/home/job-1/"))
    assert ended(runtime, "p-1").exit_code == 0
    assert runtime.tail_log("p-1", 1).data.decode() == f"{tmp_path}/shared/home/job-1\n"


def test_missing_workspace_is_created_inside_the_workloads_directory(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "run", shared=tmp_path / "shared")
    runtime.start(order("p-1", "sh", "-c", "pwd; echo kept > state", start_in="/home/job-1/"))
    assert ended(runtime, "p-1").exit_code == 0
    own = runtime.root / "workspaces" / "train-1" / "home" / "job-1"
    assert runtime.tail_log("p-1", 1).data.decode() == f"{own}\n"
    runtime.start(order("p-2", "cat", "state", start_in="/home/job-1/"))
    assert ended(runtime, "p-2").exit_code == 0
    assert runtime.tail_log("p-2", 1).data == b"kept\n"


def test_start_fails_with_a_reason_if_the_workspace_cannot_be_created(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "run", shared=tmp_path / "shared")
    runtime.start(order("p-1", "true", start_in="x" * 300))
    report = ended(runtime, "p-1")
    assert report.cause == PodCause.START_FAILED
    assert "File name too long" in report.message


def test_shim_exits_if_its_nodes_directory_is_deleted_while_the_pod_runs(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "run", anchor="")
    runtime.start(order("p-1", "sleep", "600"))
    running(runtime, "p-1")
    pod = runtime._pod_dir("p-1")
    shim, status = pod.shim_pid(), pod.read("status")
    assert shim
    assert status
    shutil.rmtree(tmp_path / "run")
    os.kill(int(status["pid"]), signal.SIGKILL)
    poll_until(lambda: not is_running(shim))
