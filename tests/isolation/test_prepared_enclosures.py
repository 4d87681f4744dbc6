"""Tests for spare shims, which prepare enclosures before their pods are known."""

import os
import signal
from collections.abc import Iterator
from ctypes import CDLL
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pools.runtimes.base import VolumeMount
from pools.runtimes.enclosure.command import FileSystemView, Mount, own_mounts
from pools.runtimes.enclosure.levels import PATHS_VARIABLE, IsolationLevel
from pools.runtimes.shim.enclosure.mounts import can_mount
from pools.runtimes.shim.enclosure.prepared import FILE
from pools.runtimes.shim.processes import children, descendants, is_running
from pools.runtimes.shim.server import SPARES
from tests.contracts.pods import LocalStage, ended, kill, order, poll_until, running

# Prints what a pod can find out about its enclosure: mounts, files, identity and settings of its process.
DESCRIBE = """
cut -d' ' -f4-6,9- /proc/self/mountinfo | sort -k2
id; umask; pwd; cat /etc/passwd /etc/group; cat /run/secrets/key
ls -lnR --time-style=+ /etc /dev /run /tmp /var | grep -v '^total'
stat -c '%A %u %g %N' /* "$HOME"; ls /proc/self/fd
grep -E '^(Cap|Seccomp|NoNewPrivs|Uid|Gid|Groups)' /proc/self/status
! touch /etc/x /run/x /dev/x /x 2>/dev/null
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LocalStage]:
    stage = LocalStage(tmp_path / "home" / "run")
    can_prepare = stage.runtime.isolation.level is IsolationLevel.USERS and can_mount(
        CDLL(None, use_errno=True)
    )
    if not can_prepare:
        pytest.skip("preparing enclosures requires root and Linux 5.12")
    yield stage
    stage.sweep()


@pytest.fixture
def visible_directory() -> Iterator[Path]:
    """Yield a directory that is not in /tmp, because each pod has a /tmp of its own."""
    with TemporaryDirectory(dir="/var/lib", prefix="berth-test-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def output(stage: LocalStage, pod_id: str, script: str, **changes: object) -> str:
    stage.runtime.start(order(pod_id, "sh", "-c", script, **changes))
    report = ended(stage.runtime, pod_id)
    text = str(stage.runtime.read_log(pod_id, 0, 100_000).data.decode())
    assert report.exit_code == 0, f"{report}: {text}"
    return text


def is_prepared(stage: LocalStage, pod_id: str) -> bool:
    """Return whether the pod used a prepared enclosure, so that bubblewrap was not started for it."""
    return not (stage.root / "pods" / pod_id / "enclosure.err").exists()


def server(stage: LocalStage) -> int:
    pid = stage.runtime._starter.server_pid
    assert pid is not None
    return pid


def has_enclosure(pid: int) -> bool:
    """Return whether bubblewrap, a child of this shim, has built an enclosure. `cat` then runs inside."""
    inside = [process for builder in children(pid) for process in children(builder)]
    return any(
        Path(f"/proc/{each}/comm").read_text() == "cat\n" for init in inside for each in children(init)
    )


def spare_shims(stage: LocalStage) -> list[int]:
    """Return the process IDs of the spare shims when all enclosures are ready. No pod may be running."""
    return poll_until(
        lambda: sorted(pid for pid in children(server(stage)) if is_running(pid) and has_enclosure(pid)),
        lambda spares: len(spares) == SPARES,
    )


def test_prepared_enclosure_equals_an_enclosure_built_for_the_pod(tmp_path: Path, stage: LocalStage) -> None:
    volumes = []
    for name in ("data", "scratch"):
        (tmp_path / name).mkdir()
        volumes.append(VolumeMount(name, str(tmp_path / name), f"/volumes/{name}", name == "scratch"))
    outputs = []
    for pod_id in ("p-1", "p-2"):
        outputs.append(
            output(stage, pod_id, DESCRIBE, volumes=tuple(volumes), secret_files={"key": "secret"})
        )
        spare_shims(stage)
    first, second = outputs
    assert (is_prepared(stage, "p-1"), is_prepared(stage, "p-2")) == (False, True)
    assert second.replace("p-2", "p-1") == first
    assert "/volumes/data" in first
    assert "secret" in first


def test_pod_sees_a_replaced_file_despite_outdated_prepared_enclosures(
    stage: LocalStage, monkeypatch: pytest.MonkeyPatch, visible_directory: Path
) -> None:
    file, replacement = visible_directory / "shared", visible_directory / "replacement"
    file.write_text("old")
    monkeypatch.setenv(PATHS_VARIABLE, str(file))
    assert output(stage, "p-1", f"cat {file}") == "old"
    outdated = spare_shims(stage)
    replacement.write_text("new")
    replacement.rename(file)
    assert output(stage, "p-2", f"cat {file}") == "new"
    assert not is_prepared(stage, "p-2")
    poll_until(lambda: not [pid for pid in outdated if is_running(pid)])
    spare_shims(stage)
    assert output(stage, "p-3", f"cat {file}") == "new"
    assert is_prepared(stage, "p-3")


def test_visible_paths_in_the_machines_tmp_do_not_prevent_a_prepared_enclosure(
    tmp_path: Path, stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Berth may have been installed in /tmp, although each pod has its own /tmp."""
    with TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "shared").write_text("visible")
        monkeypatch.setenv(PATHS_VARIABLE, directory)
        script = f"cat {directory}/shared; ls /tmp; cut -d' ' -f5,6 /proc/self/mountinfo | sort"
        first = output(stage, "p-1", script)
        spare_shims(stage)
        second = output(stage, "p-2", script)
    assert is_prepared(stage, "p-2")
    assert second.replace("p-2", "p-1") == first
    assert first.startswith("visible")


def test_session_commands_run_in_a_prepared_enclosure(stage: LocalStage) -> None:
    output(stage, "p-1", "true")
    spare_shims(stage)
    stage.runtime.start(stage.long("p-2"))
    running(stage.runtime, "p-2")
    assert is_prepared(stage, "p-2")
    stage.write_output("p-2", b"written in the pod\n")
    stage.end_pod("p-2", 3)
    assert ended(stage.runtime, "p-2").exit_code == 3


def test_killed_shim_leaves_no_process_in_its_prepared_enclosure(stage: LocalStage) -> None:
    output(stage, "p-1", "true")
    spares = spare_shims(stage)
    stage.runtime.start(order("p-2", "sh", "-c", "setsid sleep 1000 & sleep 1000"))
    running(stage.runtime, "p-2")
    shim = stage.runtime._pod_dir("p-2").shim_pid()
    assert shim in spares
    builders = children(shim)
    inside = [child for builder in builders for child in children(builder)]
    kill(shim)
    poll_until(lambda: not [pid for pid in (*builders, *inside) if is_running(pid)])
    assert ended(stage.runtime, "p-2").cause == "lost"


@pytest.mark.parametrize("victim", ["shim", "bubblewrap", "first process inside"])
def test_pod_starts_even_if_a_process_of_each_spare_shim_was_killed(stage: LocalStage, victim: str) -> None:
    output(stage, "p-1", "true")
    for shim in spare_shims(stage):
        builder = children(shim)[0]
        target = {"shim": shim, "bubblewrap": builder, "first process inside": children(builder)[0]}[victim]
        os.kill(target, signal.SIGKILL)
        poll_until(lambda target=target: not is_running(target))  # type: ignore[misc]
    assert output(stage, "p-2", "echo started") == "started\n"
    assert not is_prepared(stage, "p-2")


def test_pods_requested_together_use_one_spare_shim_each(stage: LocalStage) -> None:
    output(stage, "p-0", "true")
    spares = spare_shims(stage)
    pods = [f"p-{number}" for number in range(1, SPARES + 1)]
    for pod_id in pods:
        stage.runtime.start(stage.long(pod_id))
    for pod_id in pods:
        running(stage.runtime, pod_id)
    assert [stage.runtime._pod_dir(pod_id).shim_pid() for pod_id in pods] == spares
    assert all(is_prepared(stage, pod_id) for pod_id in pods)


@pytest.mark.parametrize("record", [b"", b"digest=1\0enclosure=/nowhere"])
def test_spare_shims_run_pods_even_if_the_enclosure_record_is_unusable(
    stage: LocalStage, record: bytes
) -> None:
    """A power failure may have emptied the record."""
    output(stage, "p-1", "true")
    outdated = spare_shims(stage)
    (stage.root / FILE).write_bytes(record)
    assert output(stage, "p-2", "true") == ""
    spares = poll_until(
        lambda: set(children(server(stage))) - set(outdated), lambda spares: len(spares) == SPARES
    )
    stage.runtime.start(stage.long("p-3"))
    running(stage.runtime, "p-3")
    assert stage.runtime._pod_dir("p-3").shim_pid() in spares
    assert not is_prepared(stage, "p-3")


def test_spare_shims_and_their_enclosures_stop_with_the_server(stage: LocalStage) -> None:
    output(stage, "p-1", "true")
    processes = [pid for spare in spare_shims(stage) for pid in (spare, *descendants(spare))]
    kill(server(stage))
    poll_until(lambda: not [pid for pid in processes if is_running(pid)])
    assert output(stage, "p-2", "echo started") == "started\n"


def test_pod_gets_a_new_enclosure_if_another_pod_could_redirect_its_mounts() -> None:
    """A pod that would hide a shared mount, or that has a private /dev/shm, also gets a new enclosure."""
    shared = FileSystemView(readable=(Mount.at("/usr"), Mount.at("/code/lib")), hidden=("/usr/state",))
    view = replace(
        shared, writable=(Mount("/pods/1/tmp", "/tmp"), Mount.at("/work")), shared_memory="/dev/shm/1",
        devices=("/dev/nvidia0",), secrets="/run/secrets",
    )  # fmt: skip
    assert own_mounts(view, shared) == [
        "--dev-bind", "/dev/nvidia0", "/dev/nvidia0", "--bind", "/dev/shm/1", "/dev/shm",
        "--bind", "/pods/1/tmp", "/tmp", "--bind", "/work", "/work", "--tmpfs", "", "/run/secrets",
        "--remount-ro", "", "/dev", "--remount-ro", "", "/usr/state", "--remount-ro", "", "/",
    ]  # fmt: skip
    redirected = replace(view, readable=(*view.readable, Mount("/volumes/data", "/work/data")))
    hiding = replace(view, writable=(*view.writable, Mount("/pods/1/code", "/code")))
    private_memory = replace(view, shared_memory="")
    assert [own_mounts(each, shared) for each in (redirected, hiding, private_memory)] == [None] * 3
    assert own_mounts(replace(view, writable=(*view.writable, Mount.at("/tmp/berth/work"))), shared)
