"""Test that random kills on this machine lose, double and leave nothing."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import pytest

from tests.journeys.command import Terminal, sign_in
from tests.journeys.conftest import InstallContext
from tests.journeys.installation import Installation, until
from tests.journeys.kills.faults import Fault, Hanging, find_processes, kill, kill_berth, strike_at_random
from tests.journeys.kills.traffic import PATIENCE, Traffic, live_rows

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(5400)]
KILLS = int(os.environ.get("BERTH_KILLS", "100"))
SEED = int(os.environ.get("BERTH_KILLS_SEED") or SystemRandom().randrange(10_000))
POOL, GPUS = "box", 2
ROLE = {"gpu": GPUS, "cpu": 0.1, "memory_mib": 64}  # needs a whole node


@dataclass
class Story:
    """A pool on this machine. `records` has no visible files once nothing runs."""

    berth: Installation
    admin: Terminal
    traffic: Traffic
    random: Random
    records: Path
    hanging: Hanging = field(default_factory=Hanging)

    def faults(self) -> list[Fault]:
        def running(*words: str) -> Callable[[], list[int]]:
            return lambda: find_processes(self.berth.processes(), *words)

        return [
            *kill_berth(self.berth, lambda: self.berth.start("--demo")),
            kill("shim", running("shim"), 6),
            self.hanging.hang("shim", running("shim"), 2),
        ]

    def leftovers(self) -> list[str]:
        files = [str(path) for path in self.records.glob("[!.]*")]
        return [*files, *map(str, live_rows(self.berth).items())]

    def describe(self) -> str:
        history = self.admin.client().node_pools.history(POOL, limit=60)
        events = [f"{event.at} {event.kind} {event.node} {event.reason}" for event in history]
        return "\n".join([f"seed {SEED}", *events, *self.leftovers()])


@pytest.fixture
def story(installing: InstallContext, tmp_path: Path) -> Iterator[Story]:
    print(f"seed: BERTH_KILLS_SEED={SEED}")
    with installing() as berth:
        users = {name: sign_in(berth, name, tmp_path / name) for name in ("admin", "dave", "grace")}
        create_pool(users["admin"])
        random = Random(SEED)
        projects = {"vision": users["dave"], "ads": users["grace"]}
        workspaces = berth.home / "run/workspaces"
        traffic = Traffic(projects, POOL, ROLE, workspaces, random)
        yield Story(berth, users["admin"], traffic, random, berth.home / "run/pods")


def create_pool(admin: Terminal) -> None:
    fast = ["reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=5", "boot_failure_limit=0"]
    admin.berth(
        "pool", "create", POOL, "--provider", "local", "--runtime", "local", "--nodes", "0:2",
        "--gpus-per-node", str(GPUS), "--cpu", "2", "--memory", "2048",
        *[part for value in fast for part in ("--set", value)],
    )  # fmt: skip
    for owner in (["research", "--department"], ["product", "--department"], ["vision"], ["ads"]):
        admin.berth("quota", "set", *owner, "--pool", POOL, "--gpu", str(GPUS))


def test_random_kills_neither_lose_nor_duplicate_nor_leak_work(story: Story) -> None:
    strike_at_random(story.faults(), story.hanging, story.random, KILLS, story.traffic.step)
    story.traffic.finish(story.admin.client(), story.describe)
    story.traffic.check()
    until(lambda: not story.leftovers(), PATIENCE, story.describe)
    story.berth.end()
    assert story.berth.processes() == {}
