"""Run pods on this machine, each with its own shim process and directory."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pools.runtimes import local_log, log_times
from pools.runtimes.base import (
    ChannelRejected,
    ClusterQuotas,
    LogChunk,
    LogTime,
    Measurements,
    PodCause,
    PodReport,
    PodSpec,
    PodState,
    PodUsage,
    RuntimeFailure,
    StopNotice,
)
from pools.runtimes.cgroup_usage import cgroup_usage
from pools.runtimes.device_usage import DeviceProbe
from pools.runtimes.enclosure.devices import UnknownDevice
from pools.runtimes.enclosure.enclosures import DirectoryNotVisible, Enclosures
from pools.runtimes.enclosure.levels import Isolation
from pools.runtimes.enclosure.limits import UnenforcedLimit, limit_fields
from pools.runtimes.enclosure.pod import shared_memory_path
from pools.runtimes.enclosure.probe import Shim as ProbedShim
from pools.runtimes.enclosure.volumes import UnusableVolume
from pools.runtimes.files.local import LocalFiles
from pools.runtimes.images.container_spec import image_env
from pools.runtimes.pod_dir import (
    NAME,
    PodDir,
    delete_stray_secrets,
    exit_report,
    parse_timestamp,
    validate_name,
)
from pools.runtimes.pod_env import download_fields, pod_env
from pools.runtimes.process_usage import usage_by_pod
from pools.runtimes.rendezvous import PortAllocator
from pools.runtimes.shim.code import DIRECTORY as CODE_DIRECTORY
from pools.runtimes.shim.code import VARIABLE as CODE_VARIABLE
from pools.runtimes.shim.processes import boot_id
from pools.runtimes.shim.records import Record, sync_directory
from pools.runtimes.shim.secrets import INSIDE, VARIABLE
from pools.runtimes.shims import SHIM_CODE, SHIM_ENV, SOURCE_ROOT, Shim, ShimStarter

CHECKPOINT = ".berth-checkpoint"
LOG_LIMIT = 256 * 1024 * 1024


class LocalRuntime(LocalFiles):
    """Runtime whose pods are processes on this machine, in the strongest enclosures that it supports.

    All state is under `root`, so several processes may use the runtime. Pods are stopped when the process
    `anchor` (`pid:start`) ends, if there is one.
    """

    starts_in_background = False

    def __init__(
        self, root: Path, anchor: str | None = None, log_limit: int = LOG_LIMIT,
        environments: Path | None = None, probe: DeviceProbe | None = None, shared: Path | None = None,
    ) -> None:  # fmt: skip
        self.root = root.resolve()
        self._environments = (environments or self.root.parent / "environments").absolute()
        self.anchor = os.environ.get("BERTH_ANCHOR", "") if anchor is None else anchor
        self.log_limit = log_limit
        self._pods, self._logs = self.root / "pods", self.root / "logs"
        self._workspaces, self._wakes = self.root / "workspaces", self.root / "wakes"
        self._volume_cache = self.root / "volumes"
        for directory in (self._pods, self._logs, self._workspaces, self._wakes, self._volume_cache):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        delete_stray_secrets(self._pods)
        self._starter, self._shims = ShimStarter(self.root), dict[str, Shim]()
        probed_shim = ProbedShim((sys.executable, "-I", "-S", "-c", SHIM_CODE, SOURCE_ROOT), SHIM_ENV)
        shared = shared or Path(os.environ.get("BERTH_WORKSPACE_ROOT") or "/")
        self._enclosures = Enclosures(self._pods, self.root.parent, shared, probed_shim)
        self._rendezvous, self._probe = PortAllocator(), probe or DeviceProbe()
        self._socket: socket.socket | None = None

    def start(self, spec: PodSpec) -> None:
        pod = self._pod_dir(spec.pod_id)
        if self._saved_log(spec.pod_id).exists():
            return
        try:
            pod.create(durable=False)
            if pod.has_record("exit") or pod.has_record("stop") or pod.has_record("status") or pod.has_shim():
                return
            if not pod.has_record("order"):
                if not self._write_pod_spec(pod, spec):
                    return
            elif self._predates_boot(pod):
                return
            if spec.has_secrets:  # an earlier shim may have read and deleted the secrets before being killed
                pod.secrets.store(dict(spec.secret_env), dict(spec.secret_files), spec.download_secret)
            if spec.image:
                pod.write_registry_auth(spec.registry_auth)
            self._spawn_shim(spec.pod_id, pod)
        except OSError as error:
            raise RuntimeFailure(str(error)) from error

    def begin_start(self, spec: PodSpec) -> None:
        """Do nothing, because this runtime starts pods one at a time."""

    def _write_pod_spec(self, pod: PodDir, spec: PodSpec) -> bool:
        workspace = self._workspaces / validate_name(spec.workspace)
        reason = self._enclosures.images.rejection_reason(spec) or self._enclosures.rejection_reason(
            spec, self._workspaces
        )
        environment = self._environments / spec.environment if spec.environment else None
        if spec.image:
            env = image_env(spec, workspace, pod.work_directory)
        else:
            env = pod_env(spec, workspace, pod.work_directory, environment=environment)
        if spec.code_url:
            env[CODE_VARIABLE] = str(pod.work_directory / CODE_DIRECTORY)
        if spec.secret_files:
            is_inside = spec.image or self.isolation.encloses
            env[VARIABLE] = INSIDE if is_inside else pod.secrets.files_directory
        reason = reason or _spec_error(spec, env) or _environment_error(environment)
        if not reason:
            workspace.mkdir(exist_ok=True, mode=0o700)
            start = self._enclosures.working_directory(spec, workspace)
            fields: Record = [("log_limit", str(self.log_limit)), ("wake_dir", str(self._wakes))]
            fields += [("create_dir", str(start.created))] if start.created else []
            fields += [("secrets", pod.secrets.home)] if spec.has_secrets else []
            fields += download_fields(spec, self._volume_cache)
            try:
                fields += limit_fields(spec, self.isolation)
                fields += self._enclosures.prepare(spec, env, pod.path, start, environment)
                pod.write_pod_spec(spec, env, pod.work_directory / start.path, fields)
                return True
            except (UnenforcedLimit, UnknownDevice, UnusableVolume, DirectoryNotVisible) as error:
                reason = str(error)
        pod.finish(PodCause.START_FAILED, reason)
        return False

    @property
    def isolation(self) -> Isolation:
        """Isolation of pods without images on this machine. The first access runs the isolation tests."""
        return self._enclosures.isolation

    def begin_image_probe(self) -> None:
        """Test the support for images in the background, so that `get_isolation` does not wait for it."""
        self._enclosures.images.begin_probe()

    def _spawn_shim(self, pod_id: str, pod: PodDir) -> None:
        self._reap_shims()
        self._shims[pod_id] = self._starter.start(pod.path, self.anchor)

    def stop(self, pod_id: str, grace_seconds: int, notice: StopNotice | None = None) -> None:
        pod = self._pod_dir(pod_id)
        if pod.has_record("exit") or self._saved_log(pod_id).exists():
            return
        try:
            pod.create()
            pod.write_stop_request(max(grace_seconds, 0), notice)
            pod.notify_shim()
        except OSError as error:
            raise RuntimeFailure(str(error)) from error
        if not pod.has_record("status") and not pod.has_shim():
            pod.finish(PodCause.STOPPED, "stopped before it started")

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        self._reap_shims()
        return {pod_id: self._get_report(pod_id, self._pod_dir(pod_id)) for pod_id in pod_ids}

    def _get_report(self, pod_id: str, pod: PodDir) -> PodReport:
        report = self._exit_report(pod) or self._running_report(pod)
        if report is not None:
            return report
        # No shim is running. The exit record may have been written since the last check, so check again.
        if not pod.has_record("exit"):
            if pod.has_record("status") or self._predates_boot(pod):
                pod.finish(PodCause.LOST, "shim process was killed; exit status unknown")
            elif pod.has_record("stop"):
                pod.finish(PodCause.STOPPED, "stopped before it started")
            elif pod_id in self._shims:
                return self._starting_report(pod_id, pod)
        # A pod with a stored spec but no shim is reported as unknown. `start` resumes it.
        return self._exit_report(pod) or self._running_report(pod) or PodReport(PodState.UNKNOWN)

    def _exit_report(self, pod: PodDir) -> PodReport | None:
        end = pod.read("exit")
        return None if end is None else exit_report(end)

    def _running_report(self, pod: PodDir) -> PodReport | None:
        if not pod.has_shim():
            return None
        status = pod.read("status")
        if status is None or status["state"] == "starting":
            progress = pod.read("progress") or {}
            return PodReport(
                PodState.STARTING, progress=progress.get("text", ""), pulls_image="pulls_image" in progress
            )
        warning = pod.read("warning") or {"number": "0", "text": ""}
        return PodReport(
            PodState.RUNNING, started_at=parse_timestamp(status["started_at"]),
            warnings=int(warning["number"]), warning=warning["text"],
        )  # fmt: skip

    def _starting_report(self, pod_id: str, pod: PodDir) -> PodReport:
        """Return the report for a pod without a running shim, which is starting or has failed to start."""
        code = self._shims[pod_id].poll()
        if code is None:
            return PodReport(PodState.STARTING)
        if code != 0:
            errors = (pod.path / "shim.err").read_text(errors="replace")[-1000:]
            pod.finish(PodCause.START_FAILED, f"shim process exited with {code}: {errors}")
        return self._exit_report(pod) or PodReport(PodState.UNKNOWN)

    def _predates_boot(self, pod: PodDir) -> bool:
        spec = pod.read("order")
        return spec is not None and spec.get("boot") != boot_id()

    def _reap_shims(self) -> None:
        """Reap exited shims. Keep those that failed to start until their pods have been reported."""
        for pod_id, shim in list(self._shims.items()):
            if shim.poll() is not None and (shim.returncode == 0 or self._pod_dir(pod_id).has_record("exit")):
                del self._shims[pod_id]

    def list_pods(self) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in os.scandir(self._pods) if not entry.name.startswith(".")))

    def forget_in_background(self, pod_id: str) -> None:
        """Do nothing, because this runtime forgets pods one at a time."""

    def forget(self, pod_id: str) -> None:
        pod = self._pod_dir(pod_id)
        if not pod.has_record("exit"):
            return
        saved = self._saved_log(pod_id)
        if pod.log.exists():
            local_log.move_log(pod.log, saved)
        else:
            saved.touch(mode=0o600)
        sync_directory(str(self._logs))
        pod.remove()

    def drop_log(self, pod_id: str) -> None:
        if not self._pod_dir(pod_id).exists:
            local_log.delete_log(self._saved_log(pod_id))

    def drop_workspace(self, workspace: str) -> None:
        path = self._workspaces / validate_name(workspace)
        shutil.rmtree(shared_memory_path(path), ignore_errors=True)
        # Ignore errors, because another process may be deleting the workspace.
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            raise RuntimeFailure(f"could not delete all of {path}")

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        ended, path = self._find_log(pod_id)
        return local_log.read_log(path, offset, limit, ended)

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        ended, path = self._find_log(pod_id)
        return local_log.tail_log(path, lines, ended)

    def read_log_times(self, pod_id: str, start: int, end: int) -> Sequence[LogTime]:
        ended, path = self._find_log(pod_id)
        return log_times.read_times(path, start, end, grows=not ended)

    def _find_log(self, pod_id: str) -> tuple[bool, Path]:
        pod = self._pod_dir(pod_id)
        ended = pod.has_record("exit")
        return (ended, pod.log) if pod.exists else (True, self._saved_log(pod_id))

    def open_channel(self, pod_id: str) -> socket.socket:
        try:
            return self._pod_dir(pod_id).connect_channel()
        except (FileNotFoundError, ConnectionRefusedError):
            state = self.get_reports([pod_id])[pod_id].state
        except OSError as error:
            raise RuntimeFailure(str(error)) from error
        if state is PodState.RUNNING:
            raise ChannelRejected(
                "the pod was started by a version of Berth that does not support shells. Restart the workload"
            )
        raise ChannelRejected("the pod is not running")

    def checkpointed_at(self, workspace: str) -> datetime | None:
        try:
            # Do not follow a link, which could point to any file on this machine.
            saved = (self._workspaces / validate_name(workspace) / CHECKPOINT).lstat().st_mtime
        except FileNotFoundError:
            return None
        saved = min(max(saved, 0.0), time.time())  # a pod can set any modification time
        return datetime.fromtimestamp(saved, timezone.utc)

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measurements:
        """Measure pods and GPUs.

        Every instance gets the same GPU measurements, because all instances share this machine.
        """
        pods = {pod_id: self._pod_dir(pod_id) for pod_id in pod_ids}
        shims = {pod_id: pod.shim_pid() for pod_id, pod in pods.items() if not pod.has_record("exit")}
        running = {pod_id: pid for pod_id, pid in shims.items() if pid}
        devices = self._probe.measure() if instance_ids else ()
        return Measurements(
            _usage_by_pod({pod_id: (pods[pod_id], pid) for pod_id, pid in running.items()}),
            dict.fromkeys(instance_ids, devices) if devices else {},
        )

    def get_isolation(self, instance_ids: Collection[str]) -> Mapping[str, Isolation]:
        return dict.fromkeys(instance_ids, self._enclosures.images.with_image_support(self.isolation))

    def get_cluster_quotas(self, pool: str) -> ClusterQuotas:
        """Return no quotas, because only Berth's own quotas apply."""
        del pool
        return ClusterQuotas()

    def rendezvous(self) -> tuple[str, int]:
        return self._rendezvous.allocate()

    def wake_fds(self) -> tuple[int, ...]:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            directory = os.open(self._wakes, os.O_RDONLY | os.O_DIRECTORY)
            try:  # connect through a descriptor, because socket paths are limited to 107 bytes
                self._socket.bind(f"/proc/self/fd/{directory}/{os.getpid()}.{id(self)}")
            finally:
                os.close(directory)
        return (self._socket.fileno(),)

    def clear_wakeups(self) -> None:
        if self._socket is not None:
            try:
                while self._socket.recv(16):
                    pass
            except BlockingIOError:
                pass

    def _pod_dir(self, pod_id: str) -> PodDir:
        return PodDir(self._pods / validate_name(pod_id))

    def _saved_log(self, pod_id: str) -> Path:
        return self._logs / validate_name(pod_id)


def _usage_by_pod(running: Mapping[str, tuple[PodDir, int]]) -> dict[str, PodUsage]:
    """Return the pods' usage from control groups or, failing that, from their processes."""
    usages = {pod_id: cgroup_usage(pod.read("cgroups") or {}) for pod_id, (pod, _) in running.items()}
    measured = {pod_id: usage for pod_id, usage in usages.items() if usage is not None}
    rest = {pod_id: pid for pod_id, (_, pid) in running.items() if pod_id not in measured}
    return measured | usage_by_pod(rest) if rest else measured


def _environment_error(environment: Path | None) -> str:
    if environment is None or (environment / ".ready").exists():
        return ""
    return f"environment {environment.name[:12]} is missing on this machine; drain the node to replace it"


def _spec_error(spec: PodSpec, env: dict[str, str]) -> str:
    if not (spec.command or spec.image) or (spec.command and not spec.command[0]):
        return "the command is empty"
    texts = [*spec.command, *env, *env.values(), spec.working_dir or "", spec.start_in, spec.name]
    texts += [spec.code_url, spec.volumes_url, spec.download_ca, spec.download_secret]
    if any("\0" in text for text in texts):
        return "the command, its environment, its code and its directory must not contain NUL"
    if any("=" in name or not name for name in (*env, *spec.secret_env)):
        return "variable names must not be empty or contain '='"
    return _secrets_error(spec)


def _secrets_error(spec: PodSpec) -> str:
    """Return why the secrets cannot be passed to the pod, or "".

    The text does not contain the secrets' values.
    """
    if any(not NAME.fullmatch(name) for name in spec.secret_files):
        return "names of secret files must be plain file names"
    texts = [*spec.secret_env, *spec.secret_env.values(), *spec.secret_files.values()]
    if any("\0" in text for text in texts):
        return "secrets must not contain NUL"
    return ""
