"""A running workload whose utilization a test sets."""

from pools.runtimes.base import DeviceUsage, PodUsage
from projects.models import Pod
from scheduler import models
from scheduler.reports.utilization import summary
from scheduler.reports.utilization.watch import UtilizationWatcher
from tests.scheduler.stage import Stage

TWO = [{"name": "worker", "replicas": 2, "gpu": 1, "cpu": 2, "memory_mib": 4096}]
SAMPLE_SECONDS = 15


class MeasuredWorkload:
    def __init__(self, stage: Stage, roles: list[dict[str, object]] | None = None) -> None:
        self.stage, self.runtime = stage, stage.runtime
        stage.cast.pool.nodes.update(gpu_memory_mib=80_000)
        self.workload = stage.submit(roles=roles or TWO)
        stage.tick(2)
        self.pods = stage.pods(self.workload, "running")
        self.watch = self.another("first")

    def another(self, name: str) -> UtilizationWatcher:
        watch = UtilizationWatcher(self.stage.clock, lambda pool: self.runtime, SAMPLE_SECONDS)
        watch._holder = name
        return watch

    def use(self, pod: Pod, cpu_seconds: float, memory_mib: int = 1000) -> None:
        self.runtime.uses[str(pod.pk)] = PodUsage(cpu_seconds, memory_mib)

    def gpus(self, *busy: int | None, memory_mib: int | None = 40_000) -> None:
        node = self.pods[0].node
        self.runtime.devices[node.instance_id] = tuple(
            DeviceUsage(index, str(node.devices[index]), percent and percent * 10, memory_mib)
            for index, percent in enumerate(busy)
        )

    def pass_time(self, seconds: float = SAMPLE_SECONDS) -> None:
        self.stage.clock.advance(seconds)
        assert self.watch.run_once()

    def now(self) -> summary.Utilization:
        held = summary.running_allocations().filter(pod__workload=self.workload)
        return summary.sum_utilization(
            pod.use for pod in summary.summarize_pods(held, self.stage.clock.now())
        )

    def sums(self, step: int) -> tuple[float, float]:
        rows = models.UtilizationPoint.objects.filter(step=step, pod__workload=self.workload)
        return sum(row.seconds for row in rows), sum(row.cpu_milli_seconds for row in rows)
