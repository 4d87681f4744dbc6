"""Raylets on this machine, each at its own loopback address."""

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

from pools.providers.base import Instance, InstanceState, ProvisionOrder, ProvisionResult
from pools.providers.local import LocalProvider
from pools.runtimes.ray.cluster import AGENT_PORT, JOBS_PORT, label_of
from pools.runtimes.ray.node.raylet import STARTED
from pools.runtimes.shim.processes import send, start_time, stat_fields
from pools.runtimes.shim.records import read_record, write_record

MOST_SECONDS_TO_END = 30.0
_SOURCE = str(Path(__file__).resolve().parents[3])


class RayNodesHere:
    """The local provider cuts the machine into nodes; this starts what each is, and looks whether it lives.

    What was started stands in a directory of the instance, so a new process finds it. All addresses of
    127.0.0.0/8 lead to this machine and nowhere else: each node has one, as if it were a machine.
    """

    machines_join = False

    def __init__(self, cut: LocalProvider, root: Path, secret_of: Callable[[str], str]) -> None:
        self.cut, self.root, self._secret_of = cut, root, secret_of
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._children: list[subprocess.Popen[bytes]] = []

    def provision(self, order: ProvisionOrder) -> ProvisionResult:
        result = self.cut.provision(order)
        return replace(result, instances=tuple(self._now(order.pool, made) for made in result.instances))

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        listed = tuple(self._now(pool, instance) for instance in self.cut.list_instances(pool))
        gone = [instance.instance_id for instance in listed if instance.state is InstanceState.GONE]
        if gone:
            self.cut.terminate(pool, gone)
        for instance_id in gone:
            shutil.rmtree(self._home(pool, instance_id), ignore_errors=True)
        return listed  # those that are gone for the last time, with the reason

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Each is asked to end; its devices are free once it has."""
        listed = {instance.instance_id: instance for instance in self.cut.list_instances(pool)}
        for instance_id in sorted(listed.keys() & set(instance_ids)):
            _begin_to_end(self._home(pool, instance_id))
            self._now(pool, listed[instance_id])
        self.list_instances(pool)

    def _now(self, pool: str, instance: Instance) -> Instance:
        """The instance as its process is; started first, where it was not yet and can be."""
        self._bury()
        home = self._home(pool, instance.instance_id)
        record, ending = read_record(str(home / "process")), read_record(str(home / "ending"))
        if ending is None and record is not None and self._lost_its_head(pool, instance, record):
            ending = _begin_to_end(home)
        if ending is not None:
            return replace(instance, state=_end(record, ending))
        if record is None:
            head = self._head(pool, instance)
            if head is not None:
                self._start(pool, instance, home, head)
            return replace(instance, state=InstanceState.BOOTING, address="")
        address = record["address"]
        if not _lives(record):
            said = f"Ray node process ended: {_last_line(home)}"
            return replace(instance, state=InstanceState.GONE, address=address, message=said)
        ready = STARTED in _text(home / "node" / "ray.log")
        state = InstanceState.READY if ready else InstanceState.BOOTING
        return replace(instance, state=state, address=address)

    def _head(self, pool: str, instance: Instance) -> str | None:
        """Where the raylets of the pool join; None while there is no head."""
        if instance.ordinal == 0:
            return ""
        for other in self.cut.list_instances(pool):
            record = read_record(str(self._home(pool, other.instance_id) / "process"))
            if other.ordinal == 0 and record is not None and _lives(record):
                return record["head"]
        return None

    def _lost_its_head(self, pool: str, instance: Instance, record: dict[str, str]) -> bool:
        """Its cluster is no more, and it can join no other: what waits for it to see that waits in vain."""
        return instance.ordinal != 0 and record["head"] != self._head(pool, instance)

    def _start(self, pool: str, instance: Instance, home: Path, head: str) -> None:
        node = home / "node"
        node.mkdir(parents=True, exist_ok=True, mode=0o700)
        address = self._free_address()
        told = self._settings(pool, instance, node, address, head or f"{address}:{_free_port()}")
        settings = home / "settings.json"
        settings.write_text(json.dumps(told))
        settings.chmod(0o600)
        with (home / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pools.runtimes.ray.node.main", str(settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env=_environment(),
            )  # fmt: skip
        self._children.append(process)
        write_record(
            str(home / "process"),
            [("pid", str(process.pid)), ("start", start_time(process.pid)), ("address", address),
             ("head", told["head"])],
        )  # fmt: skip

    def _settings(self, pool: str, instance: Instance, node: Path, address: str, head: str) -> dict[str, Any]:
        extra = ["--dashboard-agent-listen-port", str(_free_port()), "--object-store-memory", "80000000"]
        is_head = instance.ordinal == 0
        if is_head:
            extra += ["--ray-client-server-port", str(_free_port())]
        return {
            "label": label_of(instance.instance_id), "address": address, "head": head, "is_head": is_head,
            "secret": self._secret_of(pool), "root": str(node), "devices": len(instance.devices),
            "agent_port": AGENT_PORT, "jobs_port": JOBS_PORT, "extra": extra,
            "workspaces": str(self.root / "workspaces"),
            "environments": str(self.root.parent / "environments"),
            "temp": tempfile.mkdtemp(prefix="berth-ray-"),  # a socket's path may have 107 bytes
        }  # fmt: skip

    def _free_address(self) -> str:
        records = (read_record(str(path)) for path in self.root.glob("nodes/*/*/process"))
        taken = {record["address"] for record in records if record is not None and _lives(record)}
        block = 100 + os.getuid() % 100  # others may do the same beside us
        return next(
            address
            for number in range(2, 65000)
            if (address := f"127.{block}.{number // 250}.{number % 250 + 1}") not in taken
            and _is_free(address)
        )

    def _home(self, pool: str, instance_id: str) -> Path:
        return self.root / "nodes" / pool / instance_id

    def _bury(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _last_line(home: Path) -> str:
    """Of what the node's own process wrote, or else of what Ray wrote."""
    for path in (home / "node.log", home / "node" / "ray.log"):
        lines = [line.strip() for line in _text(path).splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return "no output"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _begin_to_end(home: Path) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    ending = read_record(str(home / "ending"))
    if ending is None:
        ending = {"at": repr(time.time())}
        write_record(str(home / "ending"), ending.items())
    return ending


def _end(record: dict[str, str] | None, ending: dict[str, str]) -> InstanceState:
    """It ends its pods and Ray by itself; what takes too long is killed, and Ray goes with it."""
    if record is None or not _lives(record):
        return InstanceState.GONE
    late = time.time() > float(ending["at"]) + MOST_SECONDS_TO_END
    send(int(record["pid"]), signal.SIGKILL if late else signal.SIGTERM)
    return InstanceState.ENDING


def _lives(record: dict[str, str]) -> bool:
    """A zombie does not: somebody just has not buried it."""
    fields = stat_fields(int(record["pid"]))
    return fields is not None and fields[19] == record["start"] and fields[0] != "Z"


def _environment() -> dict[str, str]:
    """Not ours: it holds the database's password, for one."""
    kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "BERTH_ANCHOR", "BERTH_GPU_PROBE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"PYTHONPATH": _SOURCE}


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, AGENT_PORT))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
