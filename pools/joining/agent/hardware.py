"""Detect this machine's hardware."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import subprocess
import uuid

from . import allocation
from .ec2 import get_metadata
from .state import STATE, read_file, write_private_file
from .version import VERSION

GPU_FIELDS = ("uuid", "name", "memory.total", "driver_version")
MIB = 1024 * 1024
DISK_STEP_MIB = 1024  # free disk space is rounded down, so that small changes do not alter the report


def detect_hardware(url: str, ec2_instance_id: str) -> dict[str, object]:
    """Return this machine's hardware as join data. Raises OSError if there is no route to the server."""
    gpus = query_gpus()
    devices = allocation.allocated_gpus(gpus)
    gpus = [gpu for gpu in gpus if gpu["uuid"] in devices]
    address = os.environ.get("BERTH_NODE_ADDRESS") or (ec2_instance_id and get_metadata("local-ipv4"))
    return {
        "name": socket.gethostname().split(".")[0],
        "address": address or own_address(url),
        "instance_id": allocation.INSTANCE_ID or ec2_instance_id,
        "cpu": allocation.usable_cpus() - reserved_amount("BERTH_RESERVED_CPUS"),
        "memory_mib": int(
            allocation.usable_memory_mib(memory_mib()) - reserved_amount("BERTH_RESERVED_MEMORY_MIB")
        ),
        "devices": devices,
        "gpu_model": gpus[0]["name"] if gpus else "",
        "machine_id": machine_id(),
        "inventory": collect_inventory(gpus),
    }


def collect_inventory(gpus: list[dict[str, str]]) -> dict[str, object]:
    """Return properties of the machine that are shown to admins but do not affect placement."""
    disk = os.statvfs(os.path.dirname(STATE))
    return {
        "agent_version": VERSION,
        "python": platform.python_version(),
        "os": _os_name(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu_model": _cpu_model(),
        "disk_mib": disk.f_blocks * disk.f_frsize // MIB,
        "disk_free_mib": disk.f_bavail * disk.f_frsize // MIB // DISK_STEP_MIB * DISK_STEP_MIB,
        "gpu_driver": gpus[0]["driver_version"] if gpus else "",
        "gpus": [{"model": gpu["name"], "memory_mib": _to_integer(gpu["memory.total"])} for gpu in gpus],
    }


def reserved_amount(variable: str) -> float:
    """Return the amount that the environment variable reserves for the system.

    Raises ValueError if the variable is invalid.
    """
    value = os.environ.get(variable) or "0"
    try:
        amount = float(value)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e9:
        raise ValueError("%s is %r. Set it to a number of at least 0." % (variable, value))
    return amount


def machine_id() -> str:
    """Return an ID that survives reboots and, if the firmware has an ID, reinstallations."""
    path = os.path.join(STATE, "machine-id")
    stored = read_file(path)
    if stored:
        return stored
    firmware = read_file("/sys/class/dmi/id/product_uuid").lower()  # only root can read this file
    is_placeholder = len(set(firmware) - {"-"}) < 4 or firmware.startswith("03000200-0400")
    source = read_file("/etc/machine-id") if is_placeholder else firmware
    digest = hashlib.sha256(("berth machine " + (source or uuid.uuid4().hex)).encode()).hexdigest()[:32]
    write_private_file(path, digest)
    return digest


def query_gpus() -> list[dict[str, str]]:
    """Return each GPU's values, keyed by nvidia-smi's field names.

    Without a driver, the list is empty.
    """
    query = ["nvidia-smi", "--query-gpu=%s" % ",".join(GPU_FIELDS), "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = [dict(zip(GPU_FIELDS, line.split(", "))) for line in output.splitlines() if line.strip()]
    return [{**gpu, "name": gpu["name"].replace("NVIDIA ", "")} for gpu in gpus]


def _to_integer(value: str) -> int:
    """Parse an integer. Return 0 if the device reports no number."""
    try:
        return int(float(value))
    except ValueError:
        return 0


def _os_name() -> str:
    values = dict(line.split("=", 1) for line in read_file("/etc/os-release").splitlines() if "=" in line)
    return values.get("PRETTY_NAME", platform.system()).strip('"')


def _cpu_model() -> str:
    for line in read_file("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""


def memory_mib() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemTotal:"))


def own_address(url: str) -> str:
    """Return this machine's address on the route to the server."""
    host = url.partition("://")[2].partition("/")[0].rsplit(":", 1)[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # connecting a UDP socket sends no packet
        return str(probe.getsockname()[0])
