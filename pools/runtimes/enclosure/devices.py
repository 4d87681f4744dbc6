"""Find GPUs' device nodes. A pod sees only the device nodes of its own GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Environment variable that contains the number of GPUs that local pools simulate.
DECLARED_VARIABLE = "BERTH_DECLARED_GPUS"
# GPU pods get all of these devices that the machine has. InfiniBand connects GPUs of different nodes.
_NVIDIA_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_NETWORK = ("infiniband", "gdrdrv")
_FIRST_RENDER_NODE = 128


class UnknownDevice(Exception):
    """Raised if one of a pod's GPUs has no device node on this machine."""


@dataclass(frozen=True)
class NvidiaGpu:
    uuid: str
    minor: int


@dataclass(frozen=True)
class PodDevices:
    """Device nodes of a pod's GPUs, and the GPU IDs for CUDA_VISIBLE_DEVICES."""

    nodes: tuple[str, ...]
    ids: tuple[str, ...]


def pod_devices(devices: Sequence[str], root: Path = Path("/")) -> PodDevices:
    """Return the device nodes and IDs of the GPUs.

    Simulated GPUs have no device nodes. Indexes are converted to UUIDs, because a pod that sees only some of
    the device nodes renumbers its GPUs from 0. A MIG partition needs all device nodes. Raises UnknownDevice.
    """
    ids = tuple(devices)
    if not ids or simulates_gpus():
        return PodDevices((), ids)
    gpus = nvidia_gpus(root)
    if gpus:
        chosen = gpus if any(name.startswith("MIG-") for name in ids) else [_find_gpu(gpus, n) for n in ids]
        names = [*_NVIDIA_CONTROL, *_NETWORK, *(f"nvidia{gpu.minor}" for gpu in chosen)]
        names += ["nvidia-caps"] if any(name.startswith("MIG-") for name in ids) else []
        by_index = {str(index): gpu.uuid for index, gpu in enumerate(gpus)}
        return PodDevices(_existing_nodes(names, root), tuple(by_index.get(name, name) for name in ids))
    if (root / "dev/kfd").exists():
        renders = amd_render_nodes(root)
        if any(not name.isdecimal() or int(name) >= len(renders) for name in ids):
            raise UnknownDevice(f"this machine has no device nodes for GPU {', '.join(ids)}")
        names = ["kfd", *_NETWORK, *(f"dri/renderD{renders[int(name)]}" for name in ids)]
        return PodDevices(_existing_nodes(names, root), tuple(str(index) for index in range(len(ids))))
    return PodDevices((), ids)


def simulates_gpus() -> bool:
    return os.environ.get(DECLARED_VARIABLE, "0") != "0"


def nvidia_gpus(root: Path = Path("/")) -> list[NvidiaGpu]:
    """Return the NVIDIA GPUs ordered by PCI address, which is also the order of their indexes."""
    gpus = []
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        text = file.read_text(errors="replace")
        uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if uuid and minor:
            gpus.append(NvidiaGpu(uuid[1], int(minor[1])))
    return gpus


def amd_render_nodes(root: Path = Path("/")) -> list[int]:
    """Return the minor number of each AMD GPU's render node, ordered by GPU index."""
    files = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    minors = []
    for file in sorted(files, key=lambda path: int(path.parent.name)):
        match = re.search(r"^drm_render_minor (\d+)", file.read_text(errors="replace"), re.MULTILINE)
        if match and int(match[1]) >= _FIRST_RENDER_NODE:
            minors.append(int(match[1]))
    return minors


def _find_gpu(gpus: Sequence[NvidiaGpu], name: str) -> NvidiaGpu:
    if name.isdecimal() and int(name) < len(gpus):
        return gpus[int(name)]
    for gpu in gpus:
        if name == gpu.uuid:
            return gpu
    raise UnknownDevice(f"this machine has no device node for GPU {name}")


def _existing_nodes(names: Sequence[str], root: Path) -> tuple[str, ...]:
    return tuple(f"/dev/{name}" for name in names if (root / "dev" / name).exists())
