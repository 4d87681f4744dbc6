"""Store images and containers on a node, separately from those of other podman users."""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterable

from pools.runtimes.images.traces import kill_processes, remove_container_cgroups
from pools.runtimes.shim.records import Record, read_fields, read_record, write_record

_LOCAL = "/run"  # files in /run disappear at a reboot, which is how podman detects reboots
REMOVE_SECONDS = 60.0
ATTEMPTS = 3  # maximum attempts to remove a container


class ImageStore:
    """Image storage below `root`, with records of images.

    `digests` contains the images' configurations; the modification time of each file is the image's last use.
    `projects` contains the digests that each project has pulled, and `locks` a lock for each digest.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.digests, self.projects, self.locks = f"{root}/digests", f"{root}/projects", f"{root}/locks"
        self.run_root = f"{_LOCAL}/berth-images-{_checksum(root)}"

    def create(self, runtime: str) -> None:
        """Create the directories and podman's settings. `runtime` is the OCI runtime."""
        for path in (self.root, self.digests, self.projects, self.locks, f"{self.root}/home"):
            os.makedirs(path, mode=0o700, exist_ok=True)
        os.makedirs(self.run_root, mode=0o700, exist_ok=True)
        graph = f"{self.root}/graph"
        _replace_file(
            f"{self.root}/storage.conf",
            f'[storage]\ndriver = "overlay"\ngraphroot = "{graph}"\nrunroot = "{self.run_root}/run"\n'
            '[storage.options.overlay]\nskip_mount_home = "true"\n',
        )
        _replace_file(
            f"{self.root}/containers.conf",
            f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
            f'lock_type = "file"\ntmp_dir = "{self.run_root}/libpod"\n',
        )

    def environment(self, variables: Iterable[str] = ()) -> dict[str, str]:
        """Return podman's environment variables, plus `variables` such as `HTTPS_PROXY=...`.

        The home directory is empty, because podman would otherwise use the user's credentials.
        """
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": f"{self.root}/home",
            "CONTAINERS_CONF": f"{self.root}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self.root}/storage.conf",
            **dict(each.split("=", 1) for each in variables),
        }

    def read_config(self, digest: str) -> Record | None:
        return read_fields(f"{self.digests}/{digest}")

    def write_config(self, digest: str, config: Record) -> None:
        write_record(f"{self.digests}/{digest}", config)

    def touch(self, digest: str) -> None:
        """Record that the image was just used."""
        try:
            os.utime(f"{self.digests}/{digest}")
        except FileNotFoundError:
            pass

    def has_access(self, project: str, digest: str) -> bool:
        """Return whether the project has pulled the image with the given digest to this node."""
        return os.path.exists(f"{self.projects}/{project}/{digest}")

    def grant_access(self, project: str, digest: str) -> None:
        os.makedirs(f"{self.projects}/{project}", mode=0o700, exist_ok=True)
        with open(f"{self.projects}/{project}/{digest}", "w"):
            pass

    def delete_records(self, digest: str) -> None:
        """Delete a removed image's records."""
        for project in os.listdir(self.projects):
            _unlink(f"{self.projects}/{project}/{digest}")
        _unlink(f"{self.digests}/{digest}")


def container_name(pod_directory: str) -> str:
    """Return the name that a pod's container and the control groups around it share."""
    return f"berth-{os.path.basename(pod_directory)}-{_checksum(pod_directory)}"


def removal_arguments(name: str) -> tuple[str, ...]:
    """Return the podman arguments that remove a container and its processes."""
    return ("rm", "--force", "--time=0", "--ignore", name)


def remove_container(pod_directory: str) -> None:
    """Remove the container that a killed shim left behind, if any, and kill its processes."""
    record = read_record(f"{pod_directory}/container")
    if record is None:
        return
    # podman cannot stop a container that was killed during its start. The next attempt removes the container.
    if any(_try_removal(record["name"], record["store"]) for _ in range(ATTEMPTS)):
        remove_traces(pod_directory, record["name"])
    # If all attempts fail, the removal is repeated when the pod's record is deleted.


def _try_removal(name: str, store: str) -> bool:
    """Kill and remove the container. Return whether this succeeded."""
    import subprocess  # imported here, because the shim imports this module but never needs subprocess

    kill_processes(name)
    try:
        done = subprocess.run(
            ["podman", *removal_arguments(name)], check=False, cwd="/", timeout=REMOVE_SECONDS,
            env=ImageStore(store).environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def remove_traces(pod_directory: str, name: str) -> None:
    """Remove the control groups and the record of a container that no longer exists."""
    remove_container_cgroups(name)
    _unlink(f"{pod_directory}/container")


def _checksum(text: str) -> str:
    return f"{binascii.crc32(text.encode()):08x}"


def _replace_file(path: str, text: str) -> None:
    draft = f"{path}.{os.getpid()}.new"
    with open(draft, "w") as file:
        file.write(text)
    os.rename(draft, path)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
