"""Ray nodes on this machine, each with its own loopback address."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pools.providers.base import Instance, InstanceState, LaunchRequest, ProvisionResult, Shape
from pools.providers.local import LocalProvider
from pools.providers.preview import Preview
from pools.runtimes.enclosure.levels import SETTINGS_OF_PODS
from pools.runtimes.ray.cluster import AGENT_PORT, JOBS_PORT, node_label
from pools.runtimes.ray.node.raylet import STARTED
from pools.runtimes.shim.processes import send_signal, start_time, stat_fields
from pools.runtimes.shim.records import read_record, write_record

END_SECONDS_MAX = 30.0
_SOURCE = str(Path(__file__).resolve().parents[3])


class LocalRayNodes:
    """Provider that runs a Ray node process for each node of the local provider.

    Processes are recorded in a directory, so a restarted server finds them. Each node has its own loopback
    address in 127.0.0.0/8.
    """

    has_joining_machines = False

    def __init__(self, local: LocalProvider, root: Path, secret_of: Callable[[str], str]) -> None:
        self.local, self.root, self._get_secret = local, root, secret_of
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._children: list[subprocess.Popen[bytes]] = []

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        result = self.local.provision(order)
        return replace(
            result,
            instances=tuple(self._advance_instance(order.pool, instance) for instance in result.instances),
        )

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        # List directories before instances, so that directories created in between are not deleted.
        homes = list(self._home(pool, "any").parent.glob("*"))
        listed = tuple(self._advance_instance(pool, instance) for instance in self.local.list_instances(pool))
        for home in set(homes) - {self._home(pool, each.instance_id) for each in listed}:
            shutil.rmtree(home, ignore_errors=True)  # left behind by a killed process
        gone_ids = [instance.instance_id for instance in listed if instance.state is InstanceState.GONE]
        if gone_ids:
            self.local.terminate(pool, gone_ids)
        for instance_id in gone_ids:
            shutil.rmtree(self._home(pool, instance_id), ignore_errors=True)
        return listed  # the result includes ended instances one last time, with the reason

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Request termination of the instances. Their devices become free when their processes have ended."""
        listed = {instance.instance_id: instance for instance in self.local.list_instances(pool)}
        for instance_id in sorted(listed.keys() & set(instance_ids)):
            _request_termination(self._home(pool, instance_id))
            self._advance_instance(pool, listed[instance_id])
        self.list_instances(pool)

    def preview(self, pool: str, shape: Shape) -> Preview:
        return self.local.preview(pool, shape)

    def _advance_instance(self, pool: str, instance: Instance) -> Instance:
        """Return the instance with its process's state. Start the process once the head node is known."""
        self._reap()
        home = self._home(pool, instance.instance_id)
        record, ending = read_record(str(home / "process")), read_record(str(home / "ending"))
        if ending is not None:
            return replace(instance, state=_end_process(record, ending))
        if record is None:
            head = self._head(pool, instance)
            if head is not None:
                self._start(pool, instance, home, head)
            return replace(instance, state=InstanceState.BOOTING, address="")
        address = record["address"]
        if not _is_running(record):
            message = f"Ray node process ended: {_last_line(home)}"
            return replace(instance, state=InstanceState.GONE, address=address, message=message)
        self._follow_head(pool, instance, home, record)
        ready = STARTED in _read_text(home / "node" / "ray.log")
        state = InstanceState.READY if ready else InstanceState.BOOTING
        return replace(instance, state=state, address=address)

    def _head(self, pool: str, instance: Instance) -> str | None:
        """Return the address of the head node that this node joins.

        Return "" for the head node itself, or None if there is no head node.
        """
        if instance.ordinal == 0:
            return ""
        for other in self.local.list_instances(pool):
            record = read_record(str(self._home(pool, other.instance_id) / "process"))
            if other.ordinal == 0 and record is not None and _is_running(record):
                return record["head"]
        return None

    def _follow_head(self, pool: str, instance: Instance, home: Path, record: dict[str, str]) -> None:
        """If the pool has a new head node, connect this node to it. The node's pods keep running."""
        head = self._head(pool, instance) if instance.ordinal != 0 else None
        if not head or head == record["head"]:
            return
        path = home / "settings.json"
        _write_private(path, json.dumps({**json.loads(path.read_text()), "head": head}))
        send_signal(int(record["pid"]), signal.SIGHUP)
        write_record(str(home / "process"), {**record, "head": head}.items())

    def _start(self, pool: str, instance: Instance, home: Path, head: str) -> None:
        node = home / "node"
        node.mkdir(parents=True, exist_ok=True, mode=0o700)
        address = self._find_free_address()
        settings = self._settings(pool, instance, node, address, head or f"{address}:{_find_free_port()}")
        path = home / "settings.json"
        _write_private(path, json.dumps(settings))
        with (home / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pools.runtimes.ray.node.main", str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env=_environment(),
            )  # fmt: skip
        self._children.append(process)
        write_record(
            str(home / "process"),
            [("pid", str(process.pid)), ("start", start_time(process.pid)), ("address", address),
             ("head", settings["head"])],
        )  # fmt: skip

    def _settings(self, pool: str, instance: Instance, node: Path, address: str, head: str) -> dict[str, Any]:
        extra = ["--dashboard-agent-listen-port", str(_find_free_port()), "--object-store-memory", "80000000"]
        is_head = instance.ordinal == 0
        if is_head:
            extra += ["--ray-client-server-port", str(_find_free_port())]
        return {
            "label": node_label(instance.instance_id), "address": address, "head": head, "is_head": is_head,
            "secret": self._get_secret(pool), "root": str(node), "devices": len(instance.devices),
            "agent_port": AGENT_PORT, "jobs_port": JOBS_PORT, "extra": extra,
            "workspaces": str(self.root / "workspaces"),
            "environments": str(self.root.parent / "environments"),
            # Keep this path short, because socket paths are limited to 107 bytes.
            "temp": tempfile.mkdtemp(prefix="berth-ray-"),
        }  # fmt: skip

    def _find_free_address(self) -> str:
        records = (read_record(str(path)) for path in self.root.glob("nodes/*/*/process"))
        used = {record["address"] for record in records if record is not None and _is_running(record)}
        # Each user gets a separate block, because others on this machine may also run nodes.
        block = 100 + os.getuid() % 100
        return next(
            address
            for number in range(2, 65000)
            if (address := f"127.{block}.{number // 250}.{number % 250 + 1}") not in used
            and _is_free(address)
        )

    def _home(self, pool: str, instance_id: str) -> Path:
        return self.root / "nodes" / pool / instance_id

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.rename(path)


def _last_line(home: Path) -> str:
    """Return the last line of the process's output or, if it has none, of Ray's output."""
    for path in (home / "node.log", home / "node" / "ray.log"):
        lines = [line.strip() for line in _read_text(path).splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return "no output"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _request_termination(home: Path) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    ending = read_record(str(home / "ending"))
    if ending is None:
        ending = {"at": repr(time.time())}
        write_record(str(home / "ending"), ending.items())
    return ending


def _end_process(record: dict[str, str] | None, ending: dict[str, str]) -> InstanceState:
    """Signal the process to stop its pods and Ray. Kill it if it takes too long."""
    if record is None or not _is_running(record):
        return InstanceState.GONE
    is_overdue = time.time() > float(ending["at"]) + END_SECONDS_MAX
    send_signal(int(record["pid"]), signal.SIGKILL if is_overdue else signal.SIGTERM)
    return InstanceState.ENDING


def _is_running(record: dict[str, str]) -> bool:
    fields = stat_fields(int(record["pid"]))
    return fields is not None and fields[19] == record["start"] and fields[0] != "Z"


def _environment() -> dict[str, str]:
    """Return the environment variables for the node's process, without any that may contain secrets."""
    names = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "BERTH_ANCHOR", "BERTH_GPU_PROBE", *SETTINGS_OF_PODS)
    return {name: os.environ[name] for name in names if name in os.environ} | {"PYTHONPATH": _SOURCE}


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, AGENT_PORT))
        except OSError:
            return False
    return True


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
