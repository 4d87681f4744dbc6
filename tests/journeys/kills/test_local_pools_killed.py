"""Test that random kills on this machine lose no work, run nothing twice and leave nothing behind.

The test runs with and without Ray.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import pytest

from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, InstallContext, until
from tests.journeys.kills.faults import Fault, Hanging, find_processes, inject_random_faults, kill, kill_berth
from tests.journeys.kills.traffic import PATIENCE, Traffic, live_rows

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(5400)]
KILLS = int(os.environ.get("BERTH_KILLS", "100"))
SEED = int(os.environ.get("BERTH_KILLS_SEED") or SystemRandom().randrange(10_000))
POOL, GPUS = "box", 2
ROLE = {"gpu": GPUS, "cpu": 0.1, "memory_mib": 64}  # this role needs a whole node


@dataclass
class Story:
    """A pool on this machine. `records` are directories that contain no visible files while nothing runs."""

    berth: Installation
    admin: Terminal
    traffic: Traffic
    random: Random
    records: tuple[Path, ...]
    runtime: str
    hanging: Hanging = field(default_factory=Hanging)

    def faults(self) -> list[Fault]:
        def running(*words: str) -> Callable[[], list[int]]:
            return lambda: find_processes(self.berth.processes(), *words)

        faults = [
            *kill_berth(self.berth, lambda: self.berth.start("--demo")),
            kill("shim", running("shim"), 6),
            self.hanging.hang("shim", running("shim"), 2),
        ]
        if self.runtime == "ray":
            faults += [
                kill("node", running("ray.node.main"), 3),
                kill("raylet", running("raylet/raylet"), 3),
                kill("head's store", running("gcs_server"), 2),
                self.hanging.hang("node", running("ray.node.main")),
                self.hanging.hang("raylet", running("raylet/raylet")),
            ]
        return faults

    def leftovers(self) -> list[str]:
        files = [str(path) for directory in self.records for path in directory.glob("[!.]*")]
        return [*files, *self.node_processes(), *map(str, live_rows(self.berth).items())]

    def node_processes(self) -> list[str]:
        """Return the processes of Ray nodes and pods.

        The server that forks shims belongs to the scheduler and remains until Berth ends.
        """
        commands = self.berth.processes().values()
        return [
            command for command in commands
            if "ray" in command.lower() or ("shim" in command and "shim.server" not in command)
        ]  # fmt: skip

    def describe(self) -> str:
        history = self.admin.client().node_pools.history(POOL, limit=60)
        events = [f"{event.at} {event.kind} {event.node} {event.reason}" for event in history]
        return "\n".join([f"seed {SEED}", *events, *self.leftovers()])


@pytest.fixture(params=["local", "ray"])
def story(request: pytest.FixtureRequest, installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    runtime = request.param
    print(f"seed: BERTH_KILLS_SEED={SEED}")
    with installing() as berth:
        users = {name: sign_in(berth, name, tmp_path / name) for name in ("admin", "dave", "grace")}
        create_pool(users["admin"], runtime)
        random = Random(SEED)
        projects = {"vision": users["dave"], "ads": users["grace"]}
        base = berth.home / {"local": "run", "ray": "raylets"}[runtime]
        records = {
            "local": (base / "pods",), "ray": (base / "nodes" / POOL, berth.home / "ray" / "pods"),
        }[runtime]  # fmt: skip
        traffic = Traffic(projects, POOL, ROLE, base / "workspaces", random)
        yield Story(berth, users["admin"], traffic, random, records, runtime)


def create_pool(admin: Terminal, runtime: str) -> None:
    fast = ["reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=5", "boot_failure_limit=0"]
    admin.berth(
        "pool", "create", POOL, "--provider", "local", "--runtime", runtime, "--nodes", "0:2",
        "--gpus-per-node", str(GPUS), "--cpu", "2", "--memory", "2048",
        *[part for value in fast for part in ("--set", value)],
    )  # fmt: skip
    for owner in (["research", "--department"], ["product", "--department"], ["vision"], ["ads"]):
        admin.berth("quota", "set", *owner, "--pool", POOL, "--gpu", str(GPUS))


def test_no_pods_are_lost_duplicated_or_leaked_after_random_kills(story: Story) -> None:
    inject_random_faults(story.faults(), story.hanging, story.random, KILLS, story.traffic.step)
    story.traffic.finish(story.admin.client(), story.describe)
    story.traffic.check()
    until(lambda: not story.leftovers(), PATIENCE, story.describe)
    story.berth.end()
    assert story.berth.processes() == {}
