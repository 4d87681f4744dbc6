"""Test whether this machine can run container images, by running a pod in a container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pools.runtimes.enclosure.command import FileSystemView
from pools.runtimes.enclosure.levels import IMAGE_CACHE_VARIABLE, IMAGES_VARIABLE, PROBE_UID
from pools.runtimes.enclosure.machine import machine_view
from pools.runtimes.enclosure.pod import PodFiles, add_own_files, user_fields
from pools.runtimes.enclosure.probe import (
    ProbeInterrupted,
    Shim,
    probe_directory,
    probe_pod_spec,
    retry_until_complete,
    run_probe_pod,
)
from pools.runtimes.enclosure.seccomp import find_filter_program
from pools.runtimes.images.container_spec import ContainerFiles, container_fields
from pools.runtimes.images.store import ImageStore, remove_container
from pools.runtimes.shim.records import write_record

PROBE_SECONDS = 60.0
DISK_SHARE = 0.3  # share of the disk that image storage may use by default
_MIB = 1024 * 1024
_INSTALL = (
    "Install podman, runc and catatonit, for example with `apt-get install podman runc catatonit`, "
    "and restart the node's agent."
)
_INIT_DIRECTORIES = ("/usr/bin", "/usr/libexec/podman", "/usr/lib/podman", "/usr/libexec/catatonit")
_UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")  # exists only with control groups version 2


@dataclass(frozen=True)
class ImageSupport:
    """This machine's support for container images: the version of podman or, if images are not supported, the
    `obstacle`.

    `init` is the program that waits in containers. `cache_bytes` limits the image storage.
    """

    version: str = ""
    obstacle: str = ""
    init: str = ""
    cache_bytes: int = 0


def probe_images(
    store: ImageStore, pods: Path, shim: Shim, environ: Mapping[str, str] = os.environ
) -> ImageSupport:
    """Run a test pod in a container that uses the machine's own programs instead of an image.

    Raises ProbeInterrupted.
    """
    try:
        support = _read_settings(store, environ)
        runtime = _find_runtime(environ)
        store.create(runtime)
        obstacle = retry_until_complete(lambda: _try_container(store, pods, shim, support.init))
        version = _read_version(store)
    except ImagesUnsupported as error:
        return ImageSupport(obstacle=str(error))
    except ProbeInterrupted:
        raise
    except (OSError, subprocess.SubprocessError) as error:
        return ImageSupport(obstacle=f"podman cannot run containers on this machine: {error}.")
    if obstacle:
        return ImageSupport(obstacle=f"podman cannot run containers on this machine: {obstacle}.")
    return replace(support, version=version)


class ImagesUnsupported(Exception):
    """Raised if the machine cannot run images. The message includes a remedy."""


def _read_settings(store: ImageStore, environ: Mapping[str, str]) -> ImageSupport:
    setting = environ.get(IMAGES_VARIABLE) or "auto"
    if setting == "off":
        raise ImagesUnsupported(f"{IMAGES_VARIABLE} is off.")
    if setting != "auto":
        raise ImagesUnsupported(f"{IMAGES_VARIABLE} is {setting!r}. Use auto or off.")
    if os.geteuid() != 0:
        raise ImagesUnsupported("Container images require an agent that runs as root.")
    if ":" in store.root:
        raise ImagesUnsupported(
            f"podman does not accept colons in paths such as {store.root}. Use another path."
        )
    init = shutil.which("catatonit", path=":".join(_INIT_DIRECTORIES))
    missing = [name for name in ("podman", "conmon") if shutil.which(name, path=environ.get("PATH")) is None]
    missing += [] if init else ["catatonit"]
    if missing or init is None:
        verb = "is" if len(missing) == 1 else "are"
        names = " and ".join(", ".join(missing).rsplit(", ", 1))
        raise ImagesUnsupported(f"{names} {verb} not installed. {_INSTALL}")
    return ImageSupport(init=init, cache_bytes=_cache_bytes(store, environ))


def _cache_bytes(store: ImageStore, environ: Mapping[str, str]) -> int:
    text = environ.get(IMAGE_CACHE_VARIABLE, "")
    if text:
        if not re.fullmatch(r"[1-9]\d{0,11}", text):
            raise ImagesUnsupported(f"{IMAGE_CACHE_VARIABLE} is {text!r}. Use a positive number of MiB.")
        return int(text) * _MIB
    Path(store.root).mkdir(mode=0o700, parents=True, exist_ok=True)
    return int(shutil.disk_usage(store.root).total * DISK_SHARE)


def _find_runtime(environ: Mapping[str, str]) -> str:
    """Return the name of the installed OCI runtime. Raises ImagesUnsupported."""
    names = ("crun", "runc") if _UNIFIED.exists() else ("runc",)
    for name in names:
        if shutil.which(name, path=f"{environ.get('PATH', '')}:/usr/sbin"):
            return name
    raise ImagesUnsupported(f"{names[-1]} is not installed. {_INSTALL}")


def _try_container(store: ImageStore, pods: Path, shim: Shim, init: str) -> str:
    """Run a probe pod in a container. Return why it failed, or "". Raises ProbeInterrupted."""
    with probe_directory(pods) as directory:
        root = directory / "root"
        files = PodFiles(directory, directory / "work", directory / "workspace")
        for path in (root, files.work, files.workspace, directory / "wakes"):
            path.mkdir(mode=0o755)
        view = add_own_files(_probe_view(root), files, PROBE_UID, {}, ())
        container = container_fields(ContainerFiles(init, view, PROBE_UID), store.root)
        fields = [*probe_pod_spec(files, PROBE_UID), *user_fields(view, PROBE_UID, find_filter_program()[0])]
        rootfs = [("podman_arg", "--rootfs"), ("podman_arg", str(root))]
        write_record(f"{directory}/order", [*fields, *container, *rootfs, ("image", "")])
        try:
            return run_probe_pod(directory, shim)
        finally:
            remove_container(str(directory))


def _probe_view(root: Path) -> FileSystemView:
    machine = machine_view([])
    for target, link in machine.links:
        (root / link.lstrip("/")).symlink_to(target)
    programs = [mount for mount in machine.readable if mount.target in ("/usr", "/bin", "/lib", "/lib64")]
    return FileSystemView(readable=tuple(programs))


def _read_version(store: ImageStore) -> str:
    completed = subprocess.run(
        ["podman", "--version"], check=True, capture_output=True, text=True, timeout=PROBE_SECONDS,
        env=store.environment(), cwd="/",
    )  # fmt: skip
    return completed.stdout.split()[-1]
