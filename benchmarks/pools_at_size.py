"""Benchmark large node pools: `python -m benchmarks.pools_at_size [NODES ...]`.

The real autoscaler and reconciler run against a simulated cloud, with a simulated clock. All gangs arrive at
once and need more nodes than the pool may have. Each gang runs for five to fifteen minutes and is requeued if
it loses a machine. When all gangs have ended, the pool scales down to zero. Gangs are placed on whole nodes,
first come, first served: other benchmarks measure the scheduler.
"""

import json
import random
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_database

SIZES = (100, 1000, 4000)
GPUS, STEP, SEED = 8, 15, 42
GANGS = (1, 1, 2, 4, 8)  # number of nodes per gang
RUNS = (300.0, 900.0)
START = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = timedelta(hours=6)


@dataclass
class Gang:
    nodes: int
    seconds: float
    on: set[int] = field(default_factory=set)
    ends_at: datetime | None = None


@dataclass
class Figures:
    nodes: int
    gangs: int
    full_after_s: float = 0.0
    empty_after_s: float = 0.0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    longest_pass_cpu_s: float = 0.0
    restarts: int = 0
    surplus_minutes: float = 0.0  # instances that cost money but do not belong to a node
    node_minutes: float = 0.0
    leaks: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    history: Counter[str] = field(default_factory=Counter)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("sizes", nargs="*", type=int, metavar="NODES", help="Numbers of nodes.")
    arguments = options.parse_args()
    sizes, rows = [8] if arguments.tiny else arguments.sizes, []
    with own_database("pools"):
        for size in sizes or SIZES:
            rows.append(vars(measured(size)))
            print("  ".join(f"{key} {_rounded(value)}" for key, value in rows[-1].items()), flush=True)
    from benchmarks.decide import RESULTS, commit, machine

    if not sizes:
        answer = {"machine": machine(), "commit": commit(), "step_seconds": STEP, "rows": rows}
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "pools_at_size.json").write_text(json.dumps(answer, indent=1) + "\n")
    if any(row["leaks"] for row in rows):
        sys.exit("instances were leaked")


def measured(size: int) -> Figures:
    from benchmarks.setup.clouds import Cloud, FaultRates

    figures = Figures(nodes=size, gangs=size * 3 // 4)
    play = Play(size, figures, Cloud(START, FaultRates(), SEED))
    while not play.is_over():
        play.step()
        if play.cloud.now - START > PATIENCE:
            sys.exit(f"{size} nodes did not settle within {PATIENCE}")
    play.conclude()
    return figures


class Play:
    """Simulation of one pool that scales from zero nodes to its maximum and back."""

    def __init__(self, size: int, figures: Figures, cloud: Any) -> None:
        from pools import services
        from projects.actor import Actor

        self.figures, self.cloud, self.size = figures, cloud, size
        self.pool = services.create_pool(
            actor=Actor.system("benchmark"), name=f"p{size}", provider="fake", runtime="fake",
            nodes=(0, size), gpus_per_node=GPUS, cpu_milli=64_000, memory_mib=524_288,
        )  # fmt: skip
        chance = random.Random(SEED)
        self.waiting = deque(Gang(chance.choice(GANGS), chance.uniform(*RUNS)) for _ in range(figures.gangs))
        self.running: list[Gang] = []
        self.ended_work: datetime | None = None

    def step(self) -> None:
        from pools.models import Node
        from pools.models.node import HOSTING

        self.cloud.pass_time(STEP)
        states = dict(Node.objects.filter(pool=self.pool, state__in=HOSTING).values_list("pk", "state"))
        self._work(states)
        self._count(states)
        began = time.process_time()
        self._scale(states)
        took = time.process_time() - began
        self.figures.cpu_s += took
        self.figures.longest_pass_cpu_s = max(self.figures.longest_pass_cpu_s, took)

    def is_over(self) -> bool:
        """Return whether the last gang and the last paid instance ended more than five minutes ago."""
        if self.waiting or self.running or self.cloud.paid():
            self.ended_work = None
        elif self.ended_work is None:
            self.ended_work = self.cloud.now
        return self.ended_work is not None and self.cloud.now - self.ended_work > timedelta(minutes=5)

    def conclude(self) -> None:
        from django.db.models import Count

        from pools.models import Node, ScalingEvent

        kinds = ScalingEvent.objects.filter(pool=self.pool).order_by().values_list("kind")
        figures, seconds = self.figures, (self.cloud.now - START).total_seconds()
        figures.simulated_s, figures.history = seconds, Counter(dict(kinds.annotate(n=Count("pk"))))
        figures.calls, figures.fates = self.cloud.calls, self.cloud.fates
        living = set(Node.objects.filter(pool=self.pool, ended_at=None).values_list("instance_id", flat=True))
        figures.leaks = len(self.cloud.paid() ^ living)

    def _work(self, states: dict[int, str]) -> None:
        """End gangs, requeue gangs that lost a node, and start gangs that fit on free ready nodes."""
        now, going_on = self.cloud.now, []
        for gang in self.running:
            if not gang.on <= states.keys():
                self.figures.restarts += 1
                gang.on, gang.ends_at = set(), None
                self.waiting.appendleft(gang)
            elif gang.ends_at is not None and now < gang.ends_at:
                going_on.append(gang)
        busy = {node for gang in going_on for node in gang.on}
        free = sorted(node for node, state in states.items() if state == "ready" and node not in busy)
        while self.waiting and self.waiting[0].nodes <= len(free):
            gang = self.waiting.popleft()
            gang.on, free = set(free[: gang.nodes]), free[gang.nodes :]
            gang.ends_at = now + timedelta(seconds=gang.seconds)
            going_on.append(gang)
        self.running = going_on

    def _scale(self, states: dict[int, str]) -> None:
        """Report the gangs' demand to the pool and reconcile it, as the scheduler does on each tick."""
        from pools import services
        from pools.engine.victims import LostWork
        from pools.models import Node
        from pools.reconciler import reconcile

        now = self.cloud.now
        busy = {node for gang in self.running for node in gang.on}
        wanting = sum(gang.nodes for gang in self.waiting)
        ready = sum(state == "ready" for state in states.values())
        services.report_pressure(
            self.pool.pk, queued=wanting * GPUS * 1000, running=len(busy) * GPUS * 1000,
            capacity=ready * GPUS * 1000, gang_nodes=wanting, at=now,
        )  # fmt: skip
        idle = [node for node, state in states.items() if state == "draining" and node not in busy]
        for node in Node.objects.filter(pk__in=idle):
            services.mark_node_emptied(node, at=now)
        to_lose = dict.fromkeys(busy, LostWork(gpu_seconds=GPUS, pods=1))
        reconcile(self.pool.pk, provider=self.cloud, now=now, work_to_lose=to_lose)

    def _count(self, states: dict[int, str]) -> None:
        from pools.models import Node

        rows = Node.objects.filter(pool=self.pool, ended_at=None).values_list("instance_id", flat=True)
        paid, figures = self.cloud.paid(), self.figures
        figures.surplus_minutes += len(paid - set(rows)) * STEP / 60
        figures.node_minutes += len(paid) * STEP / 60
        seconds = (self.cloud.now - START).total_seconds()
        if not figures.full_after_s and len(states) >= 0.99 * self.size:
            figures.full_after_s = seconds
        if paid or self.waiting or self.running:
            figures.empty_after_s = seconds


def _rounded(value: Any) -> Any:
    if isinstance(value, Counter):
        return dict(sorted(value.items()))
    return round(value, 1) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
