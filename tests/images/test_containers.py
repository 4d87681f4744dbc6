"""Tests for pods in containers: what they see and how they end."""

import signal
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause, PodState, StopNotice, VolumeMount
from pools.runtimes.enclosure.command import FileSystemView, Mount
from pools.runtimes.images.container_spec import ContainerFiles, container_fields
from pools.runtimes.images.store import container_name
from pools.runtimes.shim.channels.frames import ERRORS, OUTPUT, START, STATUS, encode_frame
from pools.runtimes.shim.channels.packing import Packer
from tests.contracts.pods import UID, ended, files_containing, poll_until, running
from tests.contracts.test_runtime import exchange
from tests.images.registry import Registry, busybox_layer, layer
from tests.images.stage import ImageStage, assert_nothing_is_left
from tests.support.ports import free_port
from tests.volumes.object_store import SigningServer, object_store

# Prints what the pod sees, one value a line.
VIEW = """
id -u; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t' ' '
touch /file 2> /dev/null || echo read-only
touch /tmp/x /var/tmp/x /dev/shm/x "$BERTH_WORKSPACE/x" && echo writable
ls /sys/fs /sys/kernel | tr -d '\\n'; ls -d /home /root /srv "$BERTH_HOME_DIR" 2> /dev/null
ls /dev | tr '\\n' ' '; echo; ls /proc | grep -c '^[0-9]'
"""


def test_pod_with_an_image_is_isolated_like_other_pods(stage: ImageStage, busybox: str) -> None:
    lines = stage.output("p-1", busybox, VIEW, env={"BERTH_HOME_DIR": str(stage.root)}).splitlines()
    assert lines[:6] == [
        str(UID), "CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2", "read-only", "writable",
    ]  # fmt: skip
    assert "kvm" not in lines[-2]
    assert int(lines[-1]) <= 5, "the pod sees only its own processes"
    assert str(stage.root) not in lines[6:-2], "the directory exists, but is not readable"
    assert (stage.root / "workspaces" / "train-1" / "x").stat().st_uid == UID
    assert_nothing_is_left(stage)


@pytest.mark.heavy
def test_secrets_exist_only_inside_the_container(stage: ImageStage, busybox: str) -> None:
    script = 'echo "$PASSWORD"; cat "$BERTH_SECRETS_DIR/key"; ls -ln /run/secrets/key; exec sleep 1000'
    secrets = {"secret_env": {"PASSWORD": "of-the-pod"}, "secret_files": {"key": "first-line\n"}}
    stage.start("p-1", busybox, "sh", "-c", script, **secrets)
    init = stage.init("p-1")
    poll_until(lambda: "/run/secrets/key" in stage.log("p-1"))
    password, key, file = stage.log("p-1").splitlines()
    assert (password, key) == ("of-the-pod", "first-line")
    assert file.split()[:4] == ["-r--------", "1", str(UID), str(UID)]
    assert "of-the-pod" not in Path(f"/proc/{init}/environ").read_text(), "podman does not know it"
    store = Path(stage.store.root)
    assert files_containing(store, container_name(str(stage.root / "pods" / "p-1")))
    assert not files_containing(store, "of-the-pod")
    assert "/run/secrets" not in Path("/proc/self/mountinfo").read_text()
    stage.runtime.stop("p-1", 0)
    ended(stage.runtime, "p-1")
    assert not Path(stage.runtime._pod_dir("p-1").secrets.home).exists(), "nothing is left on the machine"
    assert_nothing_is_left(stage)


@pytest.mark.heavy
def test_user_command_runs_inside_the_container(stage: ImageStage, busybox: str, tmp_path: Path) -> None:
    stage.start("p-1", busybox, "sleep", "1000", secret_env={"PASSWORD": "of-the-pod"})
    running(stage.runtime, "p-1")
    status = 'grep -E "^(CapEff|Seccomp):" /proc/self/status | tr -s "\t" " "'
    command = ["sh", "-c", f"id -u; {status}; echo $COLOR $PASSWORD; cat; touch /file"]
    sent = exchange(stage.runtime.open_channel("p-1"), command, b"typed\n")
    lines = sent[OUTPUT].decode().splitlines()
    assert lines == [str(UID), "CapEff: 0000000000000000", "Seccomp: 2", "blue of-the-pod", "typed"]
    assert b"/file: Read-only file system" in sent[ERRORS]
    (tmp_path / "file").write_text("content")
    archive = b"".join(Packer(str(tmp_path / "file"), print))
    sent = exchange(stage.runtime.open_channel("p-1"), {"copy_to": "/tmp"}, archive)
    assert sent == {STATUS: b'{"exit_code": 0}'}, "the image contains neither tar nor Python"
    sent = exchange(stage.runtime.open_channel("p-1"), {"copy_from": "/tmp/file"}, b"")
    assert sent == {OUTPUT: archive, STATUS: b'{"exit_code": 0}'}
    with stage.runtime.open_channel("p-1") as left_open:
        request = b'{"command": ["sh", "-c", "tty; setsid sleep 5000 & wait"], "terminal": {}}'
        left_open.sendall(encode_frame(START, request))
        assert b"/dev/pts/" in left_open.recv(100)
        stage.runtime.stop("p-1", 0)
        assert ended(stage.runtime, "p-1").cause == PodCause.STOPPED
    assert_nothing_is_left(stage)


def test_pod_reports_exit_code_and_signal_of_the_command(stage: ImageStage, busybox: str) -> None:
    assert stage.run("p-1", busybox, "exit 7").exit_code == 7
    report = stage.run("p-2", busybox, "kill -SEGV $$")
    assert (report.signal, report.exit_code, report.cause) == (11, None, PodCause.NONE)


def test_preemption_notice_reaches_the_command_in_its_container(stage: ImageStage, busybox: str) -> None:
    script = "trap 'echo saved; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
    stage.start("p-1", busybox, "sh", "-c", script)
    poll_until(lambda: "ready" in stage.log("p-1"))
    stage.runtime.stop("p-1", 30, StopNotice(signal.SIGUSR1, 3600))
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (3, PodCause.STOPPED)
    assert stage.log("p-1") == "ready\nsaved"


def test_sigterm_handler_determines_the_exit_code(stage: ImageStage, busybox: str) -> None:
    script = "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    stage.start("p-1", busybox, "sh", "-c", script)
    poll_until(lambda: "ready" in stage.log("p-1"))
    stage.runtime.stop("p-1", 30)
    report = ended(stage.runtime, "p-1")
    assert (report.exit_code, report.cause) == (9, PodCause.STOPPED)
    assert stage.log("p-1").endswith("bye")


def test_processes_left_by_the_command_end_when_the_pod_ends(stage: ImageStage, busybox: str) -> None:
    report = stage.run("p-1", busybox, "(trap '' TERM; setsid sleep 1000) & exit 3")
    assert report.exit_code == 3
    assert_nothing_is_left(stage)


def test_oom_killed_container_reports_limit_and_peak(stage: ImageStage, busybox: str) -> None:
    if "memory" not in stage.runtime.isolation.limits:
        pytest.skip(stage.runtime.isolation.limits_obstacle)
    report = stage.run("p-1", busybox, "exec awk 'BEGIN { x = 1; while (1) x = x x }'", memory_limit_mib=32)
    assert report.cause is PodCause.OUT_OF_MEMORY
    assert report.message == "killed at its memory limit: limit 32 MiB, peak 32 MiB"


@pytest.mark.heavy
def test_gang_communicates_over_loopback_and_shares_memory(stage: ImageStage, busybox: str) -> None:
    port = free_port()
    # A server that receives the end of input first exits without sending its own.
    wait = "until sleep 1 | nc 127.0.0.1 $MASTER_PORT 2> /dev/null; do sleep 0.05; done"
    scripts = {
        "p-0": "echo from-0 > /dev/shm/rank; echo hello | nc -l -p $MASTER_PORT; cat /dev/shm/reply",
        "p-1": f"{wait}; cat /dev/shm/rank; echo from-1 > /dev/shm/reply",
    }
    scripts["p-0"] = scripts["p-0"].replace(
        "; cat", "; until [ -e /dev/shm/reply ]; do sleep 0.05; done; cat"
    )
    for rank, script in enumerate(scripts.values()):
        env = {"RANK": str(rank), "MASTER_PORT": str(port)}
        stage.start(f"p-{rank}", busybox, "sh", "-c", script, env=env)
    assert [ended(stage.runtime, pod_id).exit_code for pod_id in scripts] == [0, 0]
    assert stage.log("p-1").split() == ["hello", "from-0"]
    assert stage.log("p-0") == "from-1"
    assert_nothing_is_left(stage)


# --- the image's settings


def test_document_variables_override_image_and_berth_variables(stage: ImageStage, registry: Registry) -> None:
    image = registry.push("team/env", Env=["PATH=/bin", "COLOR=blue", "SHAPE=round", "PYTHONUNBUFFERED=0"])
    env = {"COLOR": "red", "RANK": "3"}
    workspace = stage.root / "workspaces" / "train-1"
    shown = stage.output("p-1", image, "echo $PATH $COLOR $SHAPE $PYTHONUNBUFFERED $RANK $HOME", env=env)
    assert shown == f"/bin red round 0 3 {workspace}"


@pytest.mark.heavy
def test_command_replaces_the_entrypoint(stage: ImageStage, registry: Registry) -> None:
    image = registry.push(
        "team/entry", Env=["PATH=/bin"], Entrypoint=["echo", "entry"], Cmd=["cmd"], User="www"
    )
    stage.start("p-1", image)
    stage.start("p-2", image, "id", "-u")
    for pod_id in ("p-1", "p-2"):
        assert ended(stage.runtime, pod_id).exit_code == 0
    assert [stage.log("p-1"), stage.log("p-2")] == ["entry cmd", str(UID)], "the image's user is ignored"
    stage.start("p-3", registry.push("team/nothing"))
    assert "has no command. Set `command` in the document" in ended(stage.runtime, "p-3").message


@pytest.mark.heavy
def test_image_sets_the_working_directory_unless_the_document_does(
    stage: ImageStage, registry: Registry
) -> None:
    image = registry.push("team/dir", [busybox_layer(), layer({"app/file": b""})], Env=["PATH=/bin"],
                          WorkingDir="/app")  # fmt: skip
    assert stage.output("p-1", image, "pwd") == "/app"
    assert stage.output("p-2", image, "pwd", working_dir="/var") == "/var"
    private = layer({}, private="root-only")
    image = registry.push("team/lost", [busybox_layer(), private], Env=["PATH=/bin"], WorkingDir="/root-only")
    assert stage.output("p-3", image, "pwd") == str(stage.root / "pods" / "p-3" / "work")
    assert (
        stage.run("p-4", image, "pwd", working_dir="/nowhere").message
        == "/nowhere: No such file or directory"
    )


def test_missing_command_is_reported_as_a_start_failure(stage: ImageStage, busybox: str) -> None:
    stage.start("p-1", busybox, "python3")
    report = ended(stage.runtime, "p-1")
    assert (report.cause, report.message) == (PodCause.START_FAILED, "python3: No such file or directory")
    assert_nothing_is_left(stage)


def test_pod_with_an_image_cannot_use_the_pools_environment(stage: ImageStage, busybox: str) -> None:
    report = stage.run("p-1", busybox, "true", environment="a" * 64)
    assert report.cause is PodCause.START_FAILED
    assert "the pool's environment does not work in an image" in report.message


def test_secrets_are_passed_to_a_pod_with_an_image(stage: ImageStage, busybox: str) -> None:
    script = 'echo $TOKEN; cat "$BERTH_SECRETS_DIR/key"; ls -l "$BERTH_SECRETS_DIR/key" | cut -c1-10'
    secrets = {"secret_env": {"TOKEN": "token-of-7"}, "secret_files": {"key": "k-2\n"}}
    assert stage.output("p-1", busybox, script, **secrets).split() == ["token-of-7", "k-2", "-r--------"]
    assert "token-of-7" not in (stage.root / "pods" / "p-1" / "order").read_text()


@pytest.mark.heavy
def test_document_can_select_a_workspace_directory(stage: ImageStage, busybox: str) -> None:
    workspace = stage.root / "workspaces" / "train-1"
    assert stage.output("p-1", busybox, "pwd; touch file", start_in="jobs/one") == str(workspace / "jobs/one")
    assert (workspace / "jobs" / "one" / "file").exists()


def test_container_sees_only_its_own_volumes_and_writes_only_to_writable_volumes(
    stage: ImageStage, busybox: str, tmp_path: Path
) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    for directory in (data, scratch):
        directory.mkdir()
        directory.chmod(0o777)
        (directory / "file").write_text(directory.name)
    volumes = (
        VolumeMount("data", str(data), "/data"),
        VolumeMount("scratch", str(scratch), "/scratch", is_writable=True),
    )
    script = "cat /data/file; echo new > /scratch/made; (echo no > /data/made) 2>/dev/null || echo ' refused'"
    assert stage.output("p-1", busybox, script, volumes=volumes).split() == ["data", "refused"]
    assert (scratch / "made").read_text() == "new\n"
    assert not (data / "made").exists()


@pytest.mark.heavy
def test_container_reads_its_s3_volume(stage: ImageStage, busybox: str) -> None:
    with object_store() as store:
        store.fill("datasets", {"set/deep/one": b"one\n"})
        server = SigningServer(store.volume("s3://datasets/set"))
        try:
            fetched = server.order("p-1", "")
            changes = {"volumes": fetched.volumes, "volumes_url": fetched.volumes_url}
            script = "cat /data/deep/one; (echo no > /data/new) 2>/dev/null || echo refused"
            output = stage.output("p-1", busybox, script, download_secret=fetched.download_secret, **changes)
            assert output.split() == ["one", "refused"]
        finally:
            server.close()


def test_container_writes_to_its_own_copy_of_an_s3_volume(stage: ImageStage, busybox: str) -> None:
    with object_store() as store:
        store.fill("results", {"set/deep/one": b"one\n", "set/two": b"two\n"})
        server = SigningServer(store.volume("s3://results/set", access="read_write"))
        try:
            mount = VolumeMount("data", server.volume.source, "/data", True, server.volume.cache)
            sent = server.order("p-1", "")
            script = "cat /data/deep/one && echo new > /data/deep/new && rm /data/two"
            output = stage.output(
                "p-1", busybox, script, volumes=(mount,), volumes_url=sent.volumes_url,
                download_secret=sent.download_secret,
            )  # fmt: skip
            assert output == "one"
        finally:
            server.close()
    changes = stage.runtime.list_volume_changes("p-1", "data")
    assert [file.path for file in changes.files] == ["deep/new"]
    assert [path for path, _ in changes.deleted] == ["two"]
    assert stage.runtime.read_volume_file("p-1", "data", "deep/new", 0, 9) == b"new\n"


@pytest.mark.heavy
def test_directories_configured_by_the_operator_are_visible_in_containers(
    stage: ImageStage, busybox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    for directory in (data, scratch):
        directory.mkdir()
        directory.chmod(0o777)
    monkeypatch.setenv("BERTH_POD_PATHS", str(data))
    monkeypatch.setenv("BERTH_POD_WRITABLE_PATHS", str(scratch))
    stage.run("p-1", busybox, f"echo one > {scratch}/file; echo two > {data}/file")
    assert (scratch / "file").read_text() == "one\n"
    assert not (data / "file").exists()


def test_container_gets_the_device_nodes_of_its_gpus() -> None:
    view = FileSystemView(
        (), (), (), (Mount.at("/pods/1"),), ("/dev/nvidia0", "/dev/nvidiactl"), "/dev/shm/berth-1"
    )
    fields = container_fields(ContainerFiles("/usr/bin/catatonit", view, UID), "/images")
    arguments = [value for key, value in fields if key == "podman_arg"]
    assert [each for each in arguments if "device" in each] == [
        "--device=/dev/nvidia0",
        "--device=/dev/nvidiactl",
    ]
    assert "--volume=/dev/shm/berth-1:/dev/shm:rw,rbind,rprivate" in arguments
    assert "--cap-drop=all" in arguments


def test_usage_of_a_pod_with_an_image_is_measured(stage: ImageStage, busybox: str) -> None:
    stage.start("p-1", busybox, "sh", "-c", stage.SHELL)
    running(stage.runtime, "p-1")
    before = stage.runtime.measure(["p-1"], []).pods["p-1"]
    stage.work("p-1")
    after = stage.runtime.measure(["p-1"], []).pods["p-1"]
    assert after.cpu_seconds > before.cpu_seconds
    assert after.memory_mib < 100


def test_pod_survives_a_restart_of_the_runtime(stage: ImageStage, busybox: str) -> None:
    stage.start("p-1", busybox, "sh", "-c", stage.SHELL)
    running(stage.runtime, "p-1")
    stage.restart()
    assert running(stage.runtime, "p-1").state is PodState.RUNNING
    stage.end_pod("p-1", 4)
    assert ended(stage.runtime, "p-1").exit_code == 4
