"""Provider whose nodes are parts of this machine, each with its own devices.

The instances of a launch request are stored in one file, `<root>/<pool>/<token>.json`, which is written
atomically.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from berth.core.wording.words import format_count
from pools.providers.base import (
    Instance,
    InstanceState,
    LaunchRequest,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.providers.hardware import Machine
from pools.providers.preview import Preview


class LocalProvider:
    """Provider of nodes on this machine.

    `root` contains records of all instances, which never share a device. A node's CPU and memory come from
    the pool's node shape, and only the scheduler enforces them.
    """

    has_joining_machines = False

    def __init__(self, root: Path, machine: Machine) -> None:
        self.root, self.machine = root, machine
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        with self._lock_root():
            path = self._request_path(order.pool, order.client_token)
            instances = _read_instances(path)
            if not instances:
                instances = self._create_instances(order)
                _write_instances(path, instances)
        message = "" if len(instances) >= order.count else self._shortage_message(order)
        return ProvisionResult(instances, message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        with self._lock_root():
            active = [instance for instance in self._instances(pool) if instance.state != InstanceState.GONE]
        return tuple(sorted(active, key=lambda instance: (instance.ordinal, instance.instance_id)))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        ending = set(instance_ids)
        with self._lock_root():
            for path in self._request_files(pool):
                before = _read_instances(path)
                after = tuple(
                    replace(instance, state=InstanceState.GONE)
                    if instance.instance_id in ending
                    else instance
                    for instance in before
                )
                if after != before:
                    _write_instances(path, after)

    def preview(self, pool: str, shape: Shape) -> Preview:
        return Preview()

    def _create_instances(self, order: LaunchRequest) -> tuple[Instance, ...]:
        """Create the requested instances, or as many as the free devices allow.

        Raises ProviderError if none can be created.
        """
        free = self._free_devices()
        gpus = order.shape.gpus
        count = min(order.count, len(free) // gpus) if gpus else order.count
        if count == 0:
            raise ProviderError(ProviderErrorKind.CAPACITY, self._shortage_message(order))
        return tuple(
            Instance(
                instance_id=f"local-{order.client_token[:12]}-{order.start_ordinal + index}",
                ordinal=order.start_ordinal + index,
                state=InstanceState.READY,
                client_token=order.client_token,
                address=self.machine.address,
                devices=tuple(free[index * gpus : (index + 1) * gpus]),
            )
            for index in range(count)
        )

    def _free_devices(self) -> list[str]:
        used = {
            device
            for pool in self.root.iterdir()
            if pool.is_dir()
            for instance in self._instances(pool.name)
            if instance.state != InstanceState.GONE
            for device in instance.devices
        }
        return [device.identity for device in self.machine.devices if device.identity not in used]

    def _shortage_message(self, order: LaunchRequest) -> str:
        owned = format_count(len(self.machine.devices), "GPU")
        return f"this machine has {owned} ({len(self._free_devices())} free); a node needs {order.shape.gpus}"

    def _instances(self, pool: str) -> Iterator[Instance]:
        for path in self._request_files(pool):
            yield from _read_instances(path)

    def _request_files(self, pool: str) -> list[Path]:
        return sorted((self.root / pool).glob("*.json"))

    def _request_path(self, pool: str, token: str) -> Path:
        directory = self.root / pool
        directory.mkdir(exist_ok=True, mode=0o700)
        return directory / f"{token}.json"

    @contextmanager
    def _lock_root(self) -> Iterator[None]:
        with (self.root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _read_instances(path: Path) -> tuple[Instance, ...]:
    try:
        rows = json.loads(path.read_text())
    except FileNotFoundError:
        return ()
    return tuple(_to_instance(row) for row in rows)


def _to_instance(row: dict[str, Any]) -> Instance:
    return Instance(**{**row, "state": InstanceState(row["state"]), "devices": tuple(row["devices"])})


def _write_instances(path: Path, instances: tuple[Instance, ...]) -> None:
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        json.dump([asdict(instance) for instance in instances], file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
