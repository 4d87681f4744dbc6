"""Tests for the contents of a pod's enclosure, and for nodes that cannot isolate pods."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause, VolumeMount
from pools.runtimes.enclosure.command import FileSystemView, Mount, enclosure_command
from pools.runtimes.enclosure.devices import PodDevices, UnknownDevice, pod_devices
from pools.runtimes.enclosure.levels import LAST_UID, IsolationLevel, pod_uid
from pools.runtimes.enclosure.machine import machine_view
from pools.runtimes.local import LocalRuntime
from tests.contracts.pods import UID, LocalStage, ended, order, running


def output(stage: LocalStage, pod_id: str, script: str, **changes: object) -> str:
    stage.runtime.start(order(pod_id, "sh", "-c", script, **changes))
    report = ended(stage.runtime, pod_id)
    text = str(stage.runtime.read_log(pod_id, 0, 100_000).data.decode()).strip()
    assert report.cause is PodCause.NONE, f"{report}: {text}"
    return text


def pairs(argv: list[str], option: str) -> list[str]:
    return [argv[n + 2] for n, word in enumerate(argv) if word == option]


# --- the command line


def test_most_specific_path_rule_determines_what_a_pod_sees() -> None:
    view = FileSystemView(
        readable=(Mount.at("/opt/berth/venv"), Mount.at("/opt")), hidden=("/opt/berth",),
        writable=(Mount.at("/opt/berth/state/run/w"), Mount("/pods/1/tmp", "/tmp")),
    )  # fmt: skip
    argv = enclosure_command(view, IsolationLevel.USERS)
    order_of = [
        argv.index(path, 20) for path in ("/opt", "/opt/berth", "/opt/berth/venv", "/opt/berth/state/run/w")
    ]
    assert argv.index("/tmp") < order_of[-1]
    hidden = argv.index("--tmpfs", argv.index("/opt"))
    assert argv[hidden + 1] == "/opt/berth"
    assert argv.index("/opt") < hidden < argv.index("/opt/berth/venv")
    assert "--unshare-user" not in argv, "root needs no user namespace"


def test_path_mounted_under_another_name_becomes_a_link() -> None:
    zone = Mount("/usr/share/zoneinfo/UTC", "/etc/localtime")
    view = FileSystemView(readable=(Mount.at("/usr"), zone))
    assert pairs(enclosure_command(view, IsolationLevel.USERS), "--symlink") == ["/etc/localtime"]
    shadowed = [
        replace(view, hidden=("/usr/share",)),
        replace(view, writable=(Mount("/pods/1/share", "/usr/share"),)),
        replace(view, readable=(Mount("/opt/usr", "/usr"), zone)),
        replace(view, readable=(*view.readable, Mount.at("/etc/localtime/below"))),
        replace(view, readable=(*view.readable, Mount.at("/etc"))),
    ]
    for each in shadowed:
        assert "/etc/localtime" in pairs(enclosure_command(each, IsolationLevel.USERS), "--ro-bind")


def test_nested_user_namespaces_are_forbidden_if_bubblewrap_supports_it() -> None:
    assert "--disable-userns" in enclosure_command(FileSystemView(), IsolationLevel.NAMESPACES)
    assert "--disable-userns" not in enclosure_command(
        FileSystemView(), IsolationLevel.NAMESPACES, blocks_nesting=False
    )
    assert "--unshare-user" in enclosure_command(
        FileSystemView(), IsolationLevel.NAMESPACES, blocks_nesting=False
    )


def test_berths_own_files_inside_a_visible_directory_are_hidden(tmp_path: Path) -> None:
    link = tmp_path / "link"
    state = tmp_path / "data" / "berth"
    state.mkdir(parents=True)
    link.symlink_to(tmp_path / "data")
    view = machine_view([state], {"BERTH_POD_PATHS": f"{tmp_path}/data:{link}:relative:/"})
    assert {mount.target for mount in view.readable} >= {f"{tmp_path}/data", str(link), "/usr"}
    assert not {mount.target for mount in view.readable} & {"/", "relative"}
    assert sorted(view.hidden) == sorted([str(state), f"{link}/berth"])


# --- GPUs


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Create the root of a machine with two NVIDIA GPUs whose minor numbers are not in PCI order."""
    for address, uuid, minor in (("0000:0a", "GPU-a", 1), ("0000:0b", "GPU-b", 0)):
        information = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / address / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    nodes = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps", "sda")
    (tmp_path / "dev").mkdir()
    for name in nodes:
        (tmp_path / "dev" / name).touch()
    return tmp_path


def test_pod_gets_the_device_nodes_of_its_own_gpus(machine: Path) -> None:
    by_uuid = pod_devices(["GPU-b"], machine)
    assert by_uuid.nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
    assert by_uuid.ids == ("GPU-b",)
    by_index = pod_devices(["0"], machine)
    assert "/dev/nvidia1" in by_index.nodes
    assert by_index.ids == ("GPU-a",), "an index counts the GPUs that the pod sees"
    assert pod_devices([], machine).nodes == ()


def test_pod_with_a_gpu_partition_gets_all_device_nodes(machine: Path) -> None:
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps"} <= set(pod_devices(["MIG-x"], machine).nodes)


def test_gpu_without_a_device_node_is_rejected(machine: Path) -> None:
    for name in ("GPU-c", "2"):
        with pytest.raises(UnknownDevice, match=f"no device node for GPU {name}"):
            pod_devices([name], machine)


def test_simulated_gpus_hide_the_machines_gpus(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_DECLARED_GPUS", "8")
    assert pod_devices(["0", "7"], machine) == PodDevices((), ("0", "7"))


def test_simulated_gpus_have_no_device_nodes(tmp_path: Path) -> None:
    assert pod_devices(["0", "1"], tmp_path).ids == ("0", "1")
    assert pod_devices(["0", "1"], tmp_path).nodes == ()


def test_amd_gpus_are_selected_by_render_node(tmp_path: Path) -> None:
    for node, minor in ((0, 0), (1, 129), (2, 128)):
        properties = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(node) / "properties"
        properties.parent.mkdir(parents=True)
        properties.write_text(f"simd_count 1\ndrm_render_minor {minor}\n")
    (tmp_path / "dev" / "dri").mkdir(parents=True)
    for name in ("kfd", "dri/renderD128", "dri/renderD129"):
        (tmp_path / "dev" / name).touch()
    devices = pod_devices(["1"], tmp_path)
    assert devices.nodes == ("/dev/kfd", "/dev/dri/renderD128")
    assert devices.ids == ("0",)
    with pytest.raises(UnknownDevice):
        pod_devices(["2"], tmp_path)


# --- inside


def test_pod_user_id_depends_only_on_the_project() -> None:
    assert pod_uid(7) == 1_900_000_007
    for number in (0, -1, LAST_UID):
        with pytest.raises(ValueError, match="outside the range of user IDs"):
            pod_uid(number)


def test_pod_runs_as_user_pod_with_the_uid_of_its_project(stage: LocalStage) -> None:
    expected = UID if stage.runtime.isolation.level is IsolationLevel.USERS else os.geteuid()
    assert output(stage, "p-1", "id -u; id -un").split() == [str(expected), "pod"]
    assert (stage.root / "workspaces" / "train-1").stat().st_uid == expected


def test_pod_sees_read_only_copies_of_small_system_files(stage: LocalStage) -> None:
    script = (
        "grep -c ' /etc/services ' /proc/self/mountinfo; grep -c ' /etc/resolv.conf ' /proc/self/mountinfo; "
        "(echo no > /etc/services) 2>/dev/null || echo refused; cat /etc/services"
    )
    mounts, live_mounts, change, *content = output(stage, "p-1", script).splitlines()
    assert (mounts, live_mounts, change) == ("0", "1", "refused")
    assert content == Path("/etc/services").read_text().strip().splitlines()


def test_programs_can_reopen_their_standard_output(stage: LocalStage) -> None:
    assert output(stage, "p-1", "echo one >> /dev/stdout; echo two >> /dev/stderr") == "one\ntwo"


def test_pods_of_one_workload_share_memory_until_the_last_pod_ends(stage: LocalStage) -> None:
    shared = "while [ ! -e /dev/shm/from-1 ]; do sleep 0.01; done; cat /dev/shm/from-1"
    stage.runtime.start(replace(stage.long("p-1"), workspace="w"))
    running(stage.runtime, "p-1")
    stage._do("p-1", "echo shared > /dev/shm/from-1")
    assert output(stage, "p-2", shared, workspace="w") == "shared"
    assert output(stage, "p-3", "ls /dev/shm", workspace="other") == ""
    stage.end_pod("p-1", 0)
    ended(stage.runtime, "p-1")
    assert output(stage, "p-4", "ls /dev/shm", workspace="w") == ""


def test_workspace_created_before_user_separation_gets_a_new_owner(stage: LocalStage) -> None:
    workspace = stage.root / "workspaces" / "train-1"
    (workspace / "checkpoints").mkdir(parents=True)
    (workspace / "checkpoints" / "1").write_text("old")
    (workspace / "link").symlink_to("/etc/hostname")
    before = Path("/etc/hostname").stat().st_uid
    assert output(stage, "p-1", 'cd "$BERTH_WORKSPACE"; echo new > checkpoints/1; cat checkpoints/1') == "new"
    assert Path("/etc/hostname").stat().st_uid == before


def test_hard_linked_file_outside_the_workspace_keeps_its_owner(stage: LocalStage) -> None:
    workspace, outside = stage.root / "workspaces" / "train-1", stage.root.parent / "secret_key"
    workspace.mkdir()
    for path in (outside, workspace / "own"):
        path.write_text("secret")
    os.link(outside, workspace / "linked")
    os.link(workspace / "own", workspace / "copy")
    before = outside.stat().st_uid
    output(stage, "p-1", "true")
    assert outside.stat().st_uid == before
    assert (workspace / "copy").stat().st_uid == workspace.stat().st_uid


def test_symbolic_link_in_a_workspace_cannot_point_outside_the_workspace(stage: LocalStage) -> None:
    outside = stage.root.parent / "outside"
    outside.mkdir()
    output(stage, "p-1", f'ln -s {outside} "$BERTH_WORKSPACE/out"')
    stage.runtime.start(order("p-2", "true", start_in="out/created"))
    report = ended(stage.runtime, "p-2")
    assert report.cause is PodCause.START_FAILED, "the link leads nowhere in the enclosure"
    assert list(outside.iterdir()) == []


def test_symlinked_checkpoint_does_not_reveal_the_modification_time_of_another_file(
    stage: LocalStage,
) -> None:
    secret = stage.root.parent / "secret_key"
    secret.touch()
    os.utime(secret, (1.0, 1.0))
    output(stage, "p-1", f'ln -s {secret} "$BERTH_WORKSPACE/.berth-checkpoint"')
    checkpoint = stage.runtime.checkpointed_at("train-1")
    assert checkpoint is not None
    assert checkpoint.year > 1970


def test_shared_workspace_must_be_inside_its_root_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "jobs").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (shared / "link").symlink_to(tmp_path / "other")
    runtime = LocalRuntime(tmp_path / "home" / "run", anchor="", shared=shared)
    for pod_id, start_in in (("p-1", "jobs"), ("p-2", "link"), ("p-3", "/")):
        runtime.start(order(pod_id, "pwd", start_in=start_in))
        ended(runtime, pod_id)
    workspace = runtime.root / "workspaces" / "train-1"
    starts = [runtime.tail_log(pod_id, 1).data.decode().strip() for pod_id in ("p-1", "p-2", "p-3")]
    assert starts == [str(shared / "jobs"), str(workspace / "link"), str(workspace)]


def test_pod_sees_only_its_own_volumes_and_writes_only_to_writable_volumes(
    tmp_path: Path, stage: LocalStage
) -> None:
    data, scratch, other = (tmp_path / name for name in ("data", "scratch", "other"))
    for directory in (data, scratch, other):
        directory.mkdir()
        directory.chmod(0o777)
        (directory / "file").write_text(directory.name)
    volumes = (
        VolumeMount("data", str(data), "/volumes/data"),
        VolumeMount("scratch", str(scratch), "/volumes/scratch", is_writable=True),
    )
    script = (
        "cat /volumes/*/file; ls /volumes; echo new > /volumes/scratch/made; "
        f"(echo no > /volumes/data/made) 2>/dev/null || echo refused; ls {data} {other} 2>/dev/null; true"
    )
    assert output(stage, "p-1", script, volumes=volumes).split() == [
        "datascratch" + "data", "scratch", "refused",
    ]  # fmt: skip
    assert (scratch / "made").read_text() == "new\n"
    assert not (data / "made").exists()


def test_missing_symlinked_and_internal_volume_directories_are_rejected(
    tmp_path: Path, stage: LocalStage
) -> None:
    (tmp_path / "link").symlink_to("/etc")
    state = stage.root.parent
    rejected = {
        "missing": (tmp_path / "missing", "is not a directory on this node"),
        "link": (tmp_path / "link", "is reached through a symbolic link. Use the real path /etc"),
        "state": (state, "contains Berth's own files"),
        "parent": (state.parent, "contains Berth's own files"),
        "inside": (stage.root, "contains Berth's own files"),
    }
    for name, (source, message) in rejected.items():
        mount = VolumeMount(name, str(source), "/data", is_writable=True)
        stage.runtime.start(order(name, "true", volumes=(mount,)))
        report = ended(stage.runtime, name)
        assert report.cause is PodCause.START_FAILED
        assert f"the volume {name} cannot be mounted: {source} {message}" in report.message


def test_node_without_isolation_rejects_volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    runtime = LocalRuntime(tmp_path / "home" / "run", anchor="")
    runtime.start(order("p-1", "true", volumes=(VolumeMount("data", str(tmp_path), "/data"),)))
    assert "the volume data cannot be mounted, because this node does not" in ended(runtime, "p-1").message


def test_pod_cannot_start_in_a_directory_that_it_cannot_see(stage: LocalStage) -> None:
    stage.runtime.start(order("p-1", "true", working_dir="/var"))
    assert "No such file or directory in the pod" in ended(stage.runtime, "p-1").message


def test_pods_share_directories_declared_by_the_operator(
    tmp_path: Path, stage: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, data = tmp_path / "scratch", tmp_path / "data"
    for directory in (scratch, data):
        directory.mkdir()
        directory.chmod(0o777)
    monkeypatch.setenv("BERTH_POD_PATHS", str(data))
    monkeypatch.setenv("BERTH_POD_WRITABLE_PATHS", str(scratch))
    output(stage, "p-1", f"echo one > {scratch}/file; echo two > {data}/file")
    assert (scratch / "file").read_text() == "one\n"
    assert not (data / "file").exists()


# --- nodes that cannot isolate pods


@pytest.fixture
def stage_without_isolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStage]:
    monkeypatch.setenv("PATH", "/nonexistent")
    stage = LocalStage(tmp_path / "run")
    yield stage
    stage.sweep()


def test_node_without_isolation_serves_one_project_at_a_time(stage_without_isolation: LocalStage) -> None:
    assert stage_without_isolation.runtime.isolation.level is IsolationLevel.NONE
    assert "apt-get install bubblewrap" in stage_without_isolation.runtime.isolation.obstacle
    for pod_id in ("p-1", "p-2"):
        stage_without_isolation.runtime.start(order(pod_id, "/bin/true", project="vision"))
        assert ended(stage_without_isolation.runtime, pod_id).exit_code == 0
    stage_without_isolation.runtime.start(order("p-3", "/bin/true", project="speech", workspace="w-3"))
    report = ended(stage_without_isolation.runtime, "p-3")
    assert report.cause is PodCause.START_FAILED
    assert "already serves the project vision: bubblewrap is not installed" in report.message


def test_node_without_isolation_serves_another_project_once_it_is_empty(
    stage_without_isolation: LocalStage,
) -> None:
    stage_without_isolation.runtime.start(order("p-1", "/bin/true", project="vision"))
    ended(stage_without_isolation.runtime, "p-1")
    stage_without_isolation.runtime.drop_workspace("train-1")
    stage_without_isolation.runtime.start(order("p-2", "/bin/true", project="speech"))
    assert ended(stage_without_isolation.runtime, "p-2").exit_code == 0


def test_node_that_cannot_provide_required_isolation_rejects_every_pod(
    stage_without_isolation: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "require")
    stage_without_isolation.runtime.start(order("p-1", "/bin/true"))
    report = ended(stage_without_isolation.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert (
        "BERTH_ISOLATION is require, but this node cannot isolate pods: bubblewrap is not" in report.message
    )


def test_isolation_is_off_only_if_disabled_explicitly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = LocalStage(tmp_path / "run")
    monkeypatch.setenv("BERTH_ISOLATION", "none")
    with pytest.raises(ValueError, match="Use require, auto or off"):
        stage.runtime.start(order("p-1"))
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    for pod_id, project in (("p-2", "vision"), ("p-3", "speech")):
        assert output(stage, pod_id, "id -u", project=project) == str(os.geteuid())


def test_node_with_isolation_off_reports_what_to_install(
    stage_without_isolation: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    assert stage_without_isolation.runtime.isolation.obstacle.startswith(
        "BERTH_ISOLATION is off. bubblewrap is not installed."
    )


def test_pod_spec_without_a_user_is_rejected(stage: LocalStage) -> None:
    if stage.runtime.isolation.level is not IsolationLevel.USERS:
        assert stage.runtime.isolation.obstacle
        return
    stage.runtime.start(order("p-1", uid=0))
    assert "user ID 0" in ended(stage.runtime, "p-1").message
