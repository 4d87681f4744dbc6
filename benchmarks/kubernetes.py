"""Benchmark a large Kubernetes pool: `python -m benchmarks.kubernetes --kubeconfig FILE`.

The API server and the cluster's scheduler are real. A program stands in for the kubelets and reports pods as
running. One-GPU workloads and foreign pods fill all nodes. The kubeconfig needs an admin's token.

The benchmark measures scheduler ticks and reconciler passes without changes, the mirror's memory, the
requests to the API server, and the start of pods after others have ended. The baseline for ticks is an
in-memory runtime with the same rows: both kinds of ticks alternate, and their median CPU times are compared.
The baseline for starts is a thread that creates pods without Berth. Both kinds of starts alternate, because
the speed of the API server depends on the load of the machine.

With --tiny, the API server is simulated in this process.
"""

import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.kubernetes.bare_pods import (
    bound_pods,
    create_bare_pods,
    minimal_pods,
    same_pods,
    unscheduled_pods,
)
from benchmarks.setup.kubernetes.counted_requests import Requests, counted_requests
from benchmarks.setup.kubernetes.mirror_memory import measure_mirror, memory_mib
from benchmarks.setup.kubernetes.program_cpu import cpu_by_program, per_pod
from benchmarks.setup.own_database import own_database
from benchmarks.ticks import timed_steps
from berth.core.garbage import relax_garbage_collection

NODES, GPUS, ENDING, PAIRS, PASSES, ROUNDS = 500, 8, 500, 60, 7, 3
# Pods that start without Berth, and the number of threads: with as little as possible or the same manifests,
# which the cluster's scheduler or nothing binds, or which name their node.
UNSCHEDULED = "unscheduled"
BARE = ((UNSCHEDULED, 1), (UNSCHEDULED, 8), ("minimal", 8), ("same", 8), ("bound", 8))
TINY_NODES = 4
PATIENCE = 1800.0
IMAGE = "registry.example.org/bench/train@sha256:" + "a" * 64


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kubeconfig", type=Path, help="Kubeconfig of an admin, with everything inline.")
    options.add_argument("--nodes", type=int, default=NODES)
    options.add_argument("--rounds", type=int, default=ROUNDS, help="How often starts are compared.")
    options.add_argument("--starts", action="store_true", help="Measure only starts.")
    arguments = options.parse_args()
    if not arguments.tiny and arguments.kubeconfig is None:
        print("skipped: it needs the option --kubeconfig")
        return
    relax_garbage_collection()  # the scheduler also does this
    nodes = TINY_NODES if arguments.tiny else arguments.nodes
    cluster = simulated_cluster(nodes) if arguments.tiny else real_cluster(arguments.kubeconfig, nodes)
    with own_database("kubernetes"), cluster as running:
        figures = measured(running, nodes, arguments.rounds, only_starts=arguments.starts)
    from benchmarks.decide import RESULTS, commit, machine

    if not arguments.tiny and not arguments.starts and nodes == NODES:
        RESULTS.mkdir(exist_ok=True)
        answer = {"machine": machine(), "commit": commit(), "nodes": nodes, **figures}
        (RESULTS / "kubernetes.json").write_text(json.dumps(answer, indent=1) + "\n")


class Running:
    """Cluster with the benchmark's nodes. `end` completes the given number of workload pods."""

    def __init__(
        self, kubeconfig: str, selector: dict[str, str], end: Callable[[int], None], *, is_real: bool
    ) -> None:
        self.kubeconfig, self.selector, self.end, self.is_real = kubeconfig, selector, end, is_real


@contextmanager
def real_cluster(kubeconfig: Path, nodes: int) -> Iterator[Running]:
    from benchmarks.setup.kubernetes.fake_kubelets import LABEL

    program = "benchmarks.setup.kubernetes.fake_kubelets"
    command = [sys.executable, "-m", program, str(kubeconfig), str(nodes), str(nodes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kubelets:
        assert kubelets.stdin
        assert kubelets.stdout
        if kubelets.stdout.readline() != "ready\n":
            sys.exit("the nodes could not be created")

        def end(count: int) -> None:
            assert kubelets.stdin
            kubelets.stdin.write(f"end {count}\n")
            kubelets.stdin.flush()

        try:
            yield Running(kubeconfig.read_text(), {LABEL: "yes"}, end, is_real=True)
        finally:
            kubelets.stdin.close()
            kubelets.wait()


@contextmanager
def simulated_cluster(nodes: int) -> Iterator[Running]:
    from tests.fakes.kubernetes import FakeCluster, serve

    cluster = FakeCluster()
    for number in range(nodes):
        cluster.add_node(f"n-{number}", gpus=GPUS, cpu="64", labels={"bench": "yes"})
        cluster.add_foreign_pod(f"others-{number}", f"n-{number}", gpus=1)

    def end(count: int) -> None:
        running = [
            pod for pod in cluster.store.of_kind("pods")
            if pod["metadata"]["namespace"] != "others" and pod["status"]["phase"] == "Running"
        ]  # fmt: skip
        for pod in running[:count]:
            cluster.end_pod(pod["metadata"]["name"], 0)

    with serve(cluster) as url:
        config = {
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {"server": url}}],
            "users": [{"name": "bench", "user": {"token": "token"}}],
        }
        yield Running(json.dumps(config), {"bench": "yes"}, end, is_real=False)  # JSON is YAML


def measured(cluster: Running, nodes: int, rounds: int, *, only_starts: bool) -> dict[str, Any]:
    with counted_requests() as requests:
        bench = Bench(cluster, nodes, rounds, requests)
        figures: dict[str, Any] = {"mirror": bench.read_cluster()}
        _show("mirror", figures["mirror"])
        steps = {
            "first start": bench.start_first, "full mirror": bench.list_again,
            "nothing changed": bench.tick, "reconcile": bench.reconcile,
            f"{bench.ending} end and start": bench.replace,
            f"{bench.ending} deleted": bench.clean_up, f"{bench.ending} start": bench.compare_starts,
        }  # fmt: skip
        for name, measure in steps.items():
            if only_starts and not name.endswith("start"):
                continue
            requests.clear()
            result = measure()
            figures[name] = result if "rounds" in result else {**result, **requests.summary()}
            _show(name, figures[name])
    return figures


class Bench:
    """Scheduler loop for one pool on the benchmark's cluster."""

    def __init__(self, cluster: Running, nodes: int, rounds: int, requests: Requests) -> None:
        from berth.db.loops import lease
        from berth.server.wiring import load_wiring
        from pools import services
        from projects.actor import Actor
        from scheduler.loop.context import SchedulerContext
        from scheduler.loop.tick import Loop
        from tests.fakes.clock import FixedClock

        self.cluster, self.nodes, self.rounds, self.requests = cluster, nodes, rounds, requests
        self.wiring = load_wiring()
        self.capacity = nodes * GPUS - nodes  # each node has one foreign pod with one GPU
        self.ending = min(ENDING, self.capacity // 2)
        self.pairs = PAIRS if nodes > TINY_NODES else 3
        self.pool = services.create_pool(
            actor=Actor.system("benchmark"), name="bench", provider="kubernetes", nodes=nodes,
            gpus_per_node=GPUS, cpu_milli=48_000, memory_mib=32_768, kubeconfig=cluster.kubeconfig,
            provider_settings={"node_selector": cluster.selector},
        )  # fmt: skip
        self.clock = FixedClock(datetime.now(UTC))
        self.template: Any = None  # pending workload that is copied
        self.runtime: Any = None  # replaces the pool's runtime for the baseline
        held_lease = lease.acquire("scheduler", "bench", 3600 * 4)
        assert held_lease is not None
        self.context = SchedulerContext(
            held_lease=held_lease, runtimes=lambda pool: self.runtime or self.wiring.runtime_for(pool)
        )
        self.loop = Loop(context=self.context, clock=self.clock, reconcile_pool=lambda *args: False)

    def read_cluster(self) -> dict[str, Any]:
        """Wait until the pool has claimed all nodes.

        Return the duration of the first list request in seconds, and the mirror's memory in MiB.
        """
        from pools.models import Node

        before, began = memory_mib("VmRSS"), time.monotonic()
        self.wiring.provider_for(self.pool).list_instances(self.pool.name)
        wall, growth = time.monotonic() - began, memory_mib("VmRSS") - before
        while Node.objects.filter(state="ready").count() < self.nodes:
            self._reconcile()
            _check(began, "the nodes are not ready")
        return {"first_list_s": round(wall, 1), "growth_mib": round(growth, 1)}

    def start_first(self) -> dict[str, Any]:
        from benchmarks.ticks import create_queues, submit

        submit(
            self.capacity + self.ending, create_queues(self.pool, self.nodes), image=IMAGE,
            roles=[{"name": "worker", "replicas": 1, "gpu": 1, "cpu": 4, "memory_mib": 2048}],
        )  # fmt: skip
        return self._tick_until(lambda: self._running() == self.capacity, self.capacity)

    def list_again(self) -> dict[str, Any]:
        """Measure a mirror of all nodes and running pods in a new process."""
        from pools.selectors import installation_name

        return measure_mirror(self.cluster.kubeconfig, installation_name())

    def replace(self) -> dict[str, Any]:
        """End pods, and run the loop until pods of pending workloads have replaced them all."""
        from projects.models import Workload

        self.template = Workload.objects.filter(phase="pending")[0]
        self.cluster.end(self.ending)
        return self._tick_until(
            lambda: self._completed() == self.ending and self._running() == self.capacity, self.ending
        )

    def clean_up(self) -> dict[str, Any]:
        """Delete ended pods and their records, as the scheduler does when it is idle."""
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        self.clock.advance(600)
        self.loop.tick(reconcile=False)
        wall, cpu, own = time.monotonic(), time.process_time(), time.thread_time()
        with CaptureQueriesContext(connection) as statements:
            for _ in self.loop.clean_up_steps():
                pass
        return {
            "wall_s": round(time.monotonic() - wall, 1), "cpu_ms": round(1000 * (time.process_time() - cpu)),
            "cpu_of_loop_ms": round(1000 * (time.thread_time() - own)), "statements": len(statements),
        }  # fmt: skip

    def compare_starts(self) -> dict[str, Any]:
        """Alternate between starting pods with and without Berth, so that other load affects both equally."""
        rounds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for number in range(self.rounds if self.cluster.is_real else 1):
            self._empty_nodes(total=self._completed() + self.ending)
            self._submit_copies(number)
            self.requests.clear()
            began = time.monotonic()
            figures = self._tick_until(lambda: self._running() == self.capacity, self.ending)
            rounds["berth"].append({**self.requests.creations(began), **figures})
            _show("berth", rounds["berth"][-1])
            if not self.cluster.is_real:
                continue
            created = self.requests.bodies[-self.ending :]
            pods = {
                UNSCHEDULED: unscheduled_pods(created), "same": same_pods(created),
                "bound": bound_pods(created),
                "minimal": minimal_pods(self.cluster.selector, IMAGE, self.ending),
            }  # fmt: skip
            for kind, threads in BARE:
                figures = create_bare_pods(
                    self.cluster.kubeconfig, pods[kind], threads, are_run=kind != UNSCHEDULED
                )
                rounds[f"{kind}_{threads}"].append(figures)
                _show(f"{kind}_{threads}", figures)
        medians = {
            f"{name}_{rate}": statistics.median(each[rate] for each in figures)
            for name, figures in rounds.items()
            for rate in ("created_per_s", "pods_per_s")
            if rate in figures[0]
        }
        return {**medians, "rounds": rounds}

    def _empty_nodes(self, total: int) -> None:
        """End pods until `total` workloads have completed, then delete the ended pods.

        The scheduler deletes them in a tick that has nothing else to do.
        """
        self.cluster.end(self.ending)
        self._tick_until(lambda: self._completed() == total, self.ending)
        self.clock.advance(600)
        self.loop.tick()

    def _submit_copies(self, number: int) -> None:
        from projects.models import Workload

        names = [each.attname for each in Workload._meta.concrete_fields if each.name not in ("id", "name")]
        values = {name: getattr(self.template, name) for name in names}
        Workload.objects.bulk_create(
            Workload(**values, name=f"more{number}-{count}") for count in range(self.ending)
        )

    def _completed(self) -> int:
        from projects.models import Workload

        return Workload.objects.filter(phase="completed").count()

    def tick(self) -> dict[str, Any]:
        """Compare the CPU time of ticks on the cluster with ticks on the in-memory runtime.

        The ticks run in pairs, in alternating order, so that other load affects both kinds equally. The first
        pair fills caches and does not count.
        """
        in_memory = self._in_memory_runtime()
        spent: dict[str, dict[str, list[float]]] = {
            "cluster": defaultdict(list), "in_memory": defaultdict(list),
        }  # fmt: skip
        places = list(spent)
        for _ in range(1 + self.pairs):
            for place in places:
                self.runtime = in_memory if place == "in_memory" else None
                with timed_steps(spent[place]):
                    self.clock.advance(6)
                    before = time.process_time()
                    self.loop.tick()
                    spent[place]["all"].append(time.process_time() - before)
            places.reverse()
        self.runtime = None
        figures: dict[str, Any] = {
            f"{place}_cpu_ms": {step: _milliseconds(part[1:]) for step, part in seconds.items() if part[1:]}
            for place, seconds in spent.items()
        }
        whole = {place: statistics.median(seconds["all"][1:]) for place, seconds in spent.items()}
        added = round(100 * (whole["cluster"] / whole["in_memory"] - 1), 1)
        return {**figures, "pairs": self.pairs, "added_by_cluster_percent": added}

    def reconcile(self) -> dict[str, Any]:
        return {"cpu_ms": _milliseconds([self._reconcile() for _ in range(PASSES)])}

    def _in_memory_runtime(self) -> Any:
        """Return an in-memory runtime with the same running pods."""
        from projects.models import Pod
        from tests.contracts.pods import order
        from tests.fakes.runtime import FakeRuntime

        runtime = FakeRuntime(self.clock)
        for pk in Pod.objects.filter(state="running").values_list("pk", flat=True):
            runtime.start(order(str(pk), "train"))
        return runtime

    def _reconcile(self) -> float:
        """Run a reconciler pass. Return its CPU time in seconds."""
        from pools.reconciler import reconcile

        provider, began = self.wiring.provider_for(self.pool), time.process_time()
        reconcile(self.pool.pk, provider=provider, now=datetime.now(UTC))
        return time.process_time() - began

    def _running(self) -> int:
        from projects.models import Pod

        return Pod.objects.filter(state="running").count()

    def _tick_until(self, is_done: Callable[[], bool], started: int) -> dict[str, Any]:
        programs = cpu_by_program()
        began, cpu, longest, ticks = time.monotonic(), time.process_time(), 0.0, 0
        while not is_done():
            self.clock.advance(1)
            before = time.process_time()
            self.loop.tick()
            longest, ticks = max(longest, time.process_time() - before), ticks + 1
            if not self.loop.has_more:
                time.sleep(0.1)  # like this call, the loop waits for the next report
            _check(began, "the pods do not run")
        wall = time.monotonic() - began
        return {
            "wall_s": round(wall, 1), "pods_per_s": round(started / wall, 1),
            "cpu_s": round(time.process_time() - cpu, 1), "ticks": ticks,
            "longest_tick_cpu_ms": round(longest * 1000),
            "cpu_ms_per_pod": per_pod(cpu_by_program() - programs, started),
        }  # fmt: skip


def _milliseconds(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds) * 1000, 1)


def _check(began: float, problem: str) -> None:
    if time.monotonic() - began > PATIENCE:
        sys.exit(f"{problem} after {PATIENCE:.0f} s")


def _show(name: str, figures: dict[str, Any]) -> None:
    print(f"{name:<18}" + "  ".join(f"{key} {value}" for key, value in figures.items()), flush=True)


if __name__ == "__main__":
    main()
