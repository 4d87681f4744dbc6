"""Measure this machine."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import uuid

from .ec2 import get_metadata
from .state import STATE, read_file, write_private_file


def measure(url: str, ec2_instance_id: str) -> dict[str, object]:
    """Return the hardware as the join endpoint expects it. Raises OSError without a route to the server."""
    gpus = [line.split(", ") for line in query_nvidia_smi().splitlines() if line.strip()]
    return {
        "name": socket.gethostname().split(".")[0],
        "address": get_metadata("local-ipv4") if ec2_instance_id else own_address(url),
        "instance_id": ec2_instance_id,
        "cpu": float(len(os.sched_getaffinity(0))),
        "memory_mib": memory_mib(),
        "devices": [gpu[0] for gpu in gpus],
        "gpu_model": gpus[0][1].replace("NVIDIA ", "") if gpus else "",
        "machine_id": machine_id(),
    }


def machine_id() -> str:
    """Return an ID that survives reboots and, if the firmware has one, a new installation."""
    path = os.path.join(STATE, "machine-id")
    stored = read_file(path)
    if stored:
        return stored
    firmware = read_file("/sys/class/dmi/id/product_uuid").lower()  # only root may read it
    is_placeholder = len(set(firmware) - {"-"}) < 4 or firmware.startswith("03000200-0400")
    source = read_file("/etc/machine-id") if is_placeholder else firmware
    digest = hashlib.sha256(("berth machine " + (source or uuid.uuid4().hex)).encode()).hexdigest()[:32]
    write_private_file(path, digest)
    return digest


def query_nvidia_smi() -> str:
    query = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return ""


def memory_mib() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemTotal:"))


def own_address(url: str) -> str:
    """Return the address from which this machine reaches the server."""
    host = url.partition("://")[2].partition("/")[0].rsplit(":", 1)[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # connecting a UDP socket sends nothing
        return str(probe.getsockname()[0])
