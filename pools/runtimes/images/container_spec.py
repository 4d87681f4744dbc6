"""Build the pod spec fields that describe a pod's container."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pools.runtimes.base import PodSpec
from pools.runtimes.enclosure.command import FileSystemView, Mount
from pools.runtimes.images.reference import parse_reference
from pools.runtimes.shim.records import Record

# Program that waits in a container and reaps orphans.
HOLDER = "/dev/berth-init"
PAUSES = (2.0, 5.0, 15.0)  # seconds between pull attempts
SILENCE = 90.0  # seconds after which a silent registry counts as failed
# Parts of /sys that reveal other pods, or that only administrators need.
_HIDDEN_SYS = ("/sys/fs", "/sys/kernel", "/sys/power", "/sys/hypervisor")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_UNLIMITED = 1 << 64  # Python reports the kernel's RLIM_INFINITY as -1
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True)
class PullSettings:
    """Settings for image pulls.

    Times are in seconds. `pauses` are the times between attempts. A registry that sends nothing for the time
    `silence` counts as failed. `cache_bytes` limits the image storage.
    """

    cache_bytes: int
    pauses: tuple[float, ...] = PAUSES
    silence: float = SILENCE


@dataclass(frozen=True)
class ContainerFiles:
    """Files of the machine that a container needs: mounts, and `init`, the path of the init program
    catatonit.
    """

    init: str
    view: FileSystemView
    uid: int


def container_fields(files: ContainerFiles, store: str) -> Record:
    arguments = [
        "--pull=never", "--network=host", "--pid=private", "--ipc=private", "--uts=private",
        f"--user={files.uid}:{files.uid}", "--cap-drop=all", "--security-opt=no-new-privileges",
        f"--security-opt=mask={':'.join(_HIDDEN_SYS)}",
        "--read-only", "--read-only-tmpfs=false", "--image-volume=ignore", "--log-driver=none",
        "--no-healthcheck", "--systemd=false", "--stop-signal=SIGKILL", *_ulimit_options(),
        *_mount_options(files.view), f"--volume={files.init}:{HOLDER}:ro",
        *(f"--device={device}" for device in files.view.devices),
        f"--entrypoint={json.dumps([HOLDER])}",
    ]  # fmt: skip
    return [("image_store", store), *(("podman_arg", argument) for argument in arguments)]


def pull_fields(spec: PodSpec, settings: PullSettings, environ: Mapping[str, str] = os.environ) -> Record:
    """Return the pod spec fields that describe the image pull, without credentials."""
    reference = parse_reference(spec.image)
    return [
        ("image", spec.image), ("image_digest", reference.digest), ("image_policy", spec.image_pull_policy),
        ("image_project", str(spec.uid)), ("image_silence", repr(settings.silence)),
        ("image_cache", str(settings.cache_bytes)),
        *(("image_pause", repr(pause)) for pause in settings.pauses),
        *(("podman_env", f"{name}={environ[name]}") for name in (*_PROXIES, *_TRUST) if environ.get(name)),
    ]  # fmt: skip


def image_env(spec: PodSpec, workspace: Path, work: Path) -> dict[str, str]:
    """Return the pod's environment variables, which override those of the image."""
    return {
        **spec.env,
        "CUDA_VISIBLE_DEVICES": ",".join(spec.devices),
        "BERTH_WORKSPACE": str(workspace),
        "BERTH_POD_DIR": str(work),
    }


def default_fields(workspace: Path, work: Path, environ: Mapping[str, str] = os.environ) -> Record:
    """Return the default environment variables, which the image and the workload's document may override."""
    variables = {
        "PATH": _PATH, "HOME": str(workspace), "TMPDIR": str(work), "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **{name: environ[name] for name in _PROXIES if name in environ},
    }  # fmt: skip
    return [("env_default", f"{name}={value}") for name, value in variables.items()]


def _ulimit_options() -> list[str]:
    """Return the podman options that set this process's limits in the container, because podman's default
    limits may be higher.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())  # podman reduces its own limit to this value
    processes = [min(limit % _UNLIMITED, most) for limit in resource.getrlimit(resource.RLIMIT_NPROC)]
    return [f"--ulimit=nofile={files[0]}:{files[1]}", f"--ulimit=nproc={processes[0]}:{processes[1]}"]


def _mount_options(view: FileSystemView) -> list[str]:
    options = [_bind_option(mount, "ro") for mount in _include_inner_mounts(view.readable)]
    options += [_bind_option(mount, "rw") for mount in view.writable]
    options += [f"--mount=type=tmpfs,target={path},ro=true,tmpfs-mode=755" for path in view.hidden]
    if view.secrets:
        options.append(f"--mount=type=tmpfs,target={view.secrets},tmpfs-mode=755")
    shared_memory = Mount(view.shared_memory, "/dev/shm")  # noqa: S108
    return [*options, _bind_option(shared_memory, "rw")] if view.shared_memory else options


def _bind_option(mount: Mount, mode: str) -> str:
    return f"--volume={mount.source}:{mount.target}:{mode},rbind,rprivate"


def _include_inner_mounts(mounts: Sequence[Mount]) -> Iterable[Mount]:
    """Yield each mount, followed by a mount for each of the machine's mount points inside it.

    Without mounts of their own, these would be writable inside a read-only mount.
    """
    points = [_unescape_mount_path(line.split()[4]) for line in _mount_lines()]
    for mount in mounts:
        yield mount
        for point in points:
            if point.startswith(f"{mount.source}/"):
                yield Mount(point, mount.target + point[len(mount.source) :])


def _mount_lines() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def _unescape_mount_path(path: str) -> str:
    return path.replace("\\040", " ").replace("\\134", "\\")
