"""Check the directories of a pod's volumes on this machine, and return the mounts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pools.runtimes.base import PodSpec, VolumeMount
from pools.runtimes.enclosure.command import Mount, is_inside
from pools.runtimes.shim.transfers.volumes import DIRECTORY as FETCHED


class UnusableVolume(Exception):
    """Raised if this machine cannot provide a volume to a pod. The message contains the reason."""


@dataclass(frozen=True)
class VolumeMounts:
    readable: tuple[Mount, ...] = ()
    writable: tuple[Mount, ...] = ()


def require_no_volumes(spec: PodSpec) -> None:
    """Raise UnusableVolume if the pod has volumes, because they cannot be mounted without an enclosure."""
    if spec.volumes:
        raise UnusableVolume(
            f"the volume {spec.volumes[0].name} cannot be mounted, because this node does not isolate pods. "
            "Use another pool"
        )


def volume_mounts(spec: PodSpec, state: Path, directory: Path) -> VolumeMounts:
    """Return the pod's volume mounts.

    `state` contains Berth's own files, which pods must not see. S3 volumes are fetched into the pod's
    `directory` later. Raises UnusableVolume if a directory is missing, overlaps `state`, or is reached
    through a symbolic link.
    """
    mounts = []
    for volume in spec.volumes:
        source = volume.source
        if volume.cache:
            source = str(directory / FETCHED / volume.name)
        else:
            _check_volume(volume, os.path.realpath(state))
        mounts.append((volume.is_writable, Mount(source, volume.path)))
    return VolumeMounts(
        tuple(mount for is_writable, mount in mounts if not is_writable),
        tuple(mount for is_writable, mount in mounts if is_writable),
    )


def _check_volume(volume: VolumeMount, state: str) -> None:
    subject = f"the volume {volume.name} cannot be mounted: {volume.source}"
    real = os.path.realpath(volume.source)
    if not Path(volume.source).is_dir():
        raise UnusableVolume(f"{subject} is not a directory on this node")
    if real != volume.source:
        raise UnusableVolume(f"{subject} is reached through a symbolic link. Use the real path {real}")
    if is_inside(real, [state]) or is_inside(state, [real]):
        raise UnusableVolume(f"{subject} contains Berth's own files")
