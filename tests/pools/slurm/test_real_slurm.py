"""Tests for pilot jobs on a real Slurm cluster. Their nodes run only the agent."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from pools import services
from pools.joining.pilot import pilot_shell_variables
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import NodeState
from pools.providers.slurm.client import SlurmClient
from pools.providers.slurm.programs import SlurmPrograms
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.settings import SlurmSettings, slurm_settings
from pools.reconciler import reconcile
from tests.contracts.slurm.cluster import MACHINES, SlurmCluster, missing_programs, slurm_cluster
from tests.contracts.slurm.rest import SlurmRestServer, allow_tokens, missing_rest
from tests.pools.stage import SYSTEM

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900), pytest.mark.django_db(transaction=True)]
PATIENCE = 200.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if missing := missing_programs():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    with slurm_cluster(_prepare) as cluster:
        yield cluster


def _prepare(cluster: SlurmCluster) -> None:
    allow_tokens(cluster)
    with (cluster.root / "slurm.conf").open("a") as configuration:
        configuration.write(
            "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n"
            f"PartitionName=urgent Nodes=n[0-{MACHINES - 1}] PriorityTier=10 PreemptMode=OFF State=UP\n"
        )


@pytest.fixture(scope="module")
def slurmrestd(slurm: SlurmCluster) -> SlurmRestServer:
    if missing := missing_rest():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    server = SlurmRestServer(slurm)
    server.start()
    return server


class WithoutScripts:
    """Wiring whose runtime turns a joined machine into a node without a script."""

    def runtime_for(self, pool: NodePool) -> object:
        return None


@dataclass
class RealPool:
    """A pool of up to four nodes that is reconciled whenever the test reads it."""

    slurm: SlurmCluster
    pool: NodePool
    settings: dict[str, Any]
    client: Callable[[SlurmSettings], SlurmClient]
    provider: SlurmProvider = field(init=False)

    def __post_init__(self) -> None:
        self.configure(self.settings)

    def configure(self, settings: dict[str, Any]) -> None:
        values = slurm_settings(settings)
        self.provider = SlurmProvider(
            values, self.client(values), "real", variables=pilot_shell_variables, now=timezone.now
        )  # fmt: skip

    def resize(self, nodes: int) -> None:
        services.set_nodes_desired(actor=SYSTEM, pool=self.pool, nodes_desired=nodes)

    def reconcile(self, at: datetime | None = None) -> None:
        NodePool.objects.filter(pk=self.pool.pk).update(ticked_at=None, retry_at=None, boot_retry_at=None)
        for node in Node.objects.filter(state=NodeState.DRAINING):
            services.mark_node_emptied(node)
        reconcile(self.pool.pk, provider=self.provider, now=at or timezone.now())

    def states(self) -> list[str]:
        self.reconcile()
        living = Node.objects.exclude(state=NodeState.ENDED).order_by("ordinal")
        return list(living.values_list("state", flat=True))

    def wait(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.2)

    def reconcile_until(self, reached: Callable[[], object]) -> None:
        def step() -> object:
            self.reconcile()
            return reached()

        self.wait(step)

    def wait_for(self, *states: str) -> None:
        self.wait(lambda: self.states() == list(states))

    def find_job(self, ordinal: int) -> str:
        node = Node.objects.exclude(state=NodeState.ENDED).get(ordinal=ordinal)
        return node.instance_id.partition("-")[0]

    def story(self) -> str:
        lines = [f"{event.kind}: {event.reason}" for event in ScalingEvent.objects.order_by("pk")]
        logs = (self.slurm.root / "shared" / "logs").glob("*")
        lines += [path.read_text(errors="replace")[-1500:] for path in logs]
        return "\n".join(lines)


@pytest.fixture(params=["programs", "slurmrestd"])
def stage(
    request: pytest.FixtureRequest, slurm: SlurmCluster, live_server: LiveServer, settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RealPool]:  # fmt: skip
    settings.BERTH_PUBLIC_URL = live_server.url
    settings.BERTH_PLAIN_HTTP = True
    monkeypatch.setattr("pools.api.joining.load_wiring", WithoutScripts)
    values = {
        "partition": "gpu", "directory": str(slurm.root / "shared"), "notice_lead": "10m",
        "setup": [f"export TMPDIR={slurm.root}/tmp"],
    }  # fmt: skip
    client: Callable[[SlurmSettings], SlurmClient] = lambda settings: SlurmPrograms(settings, slurm.commands)  # noqa: E731
    credentials = {}
    if request.param == "slurmrestd":
        server: SlurmRestServer = request.getfixturevalue("slurmrestd")
        values |= {"rest_url": server.url, "rest_user": server.user}
        client, credentials = server.client, {"slurm_token": server.token()}
    pool = services.create_pool(
        actor=SYSTEM, name="hpc", nodes=(0, 4), provider="slurm", runtime="fake", gpus_per_node=2,
        cpu_milli=2000, memory_mib=2048, provider_settings=values, **credentials,
    )  # fmt: skip
    stage = RealPool(slurm, pool, values, client)
    yield stage
    slurm.clear()
    stage.wait(lambda: slurm.leftovers() == [])


def test_node_has_the_resources_that_slurm_allocated(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(2)
    stage.wait_for("ready", "ready")
    node = Node.objects.get(ordinal=1)
    assert (node.devices, node.gpus, node.cpu_milli, node.memory_mib) == (["0", "1"], 2, 2000, 2048)
    assert list((slurm.root / "shared").glob("pilots/*")) == [], "the token is deleted"
    stage.resize(0)
    stage.wait(lambda: stage.states() == [] and slurm.queue() == [])
    assert not ScalingEvent.objects.filter(kind__in=["lost", "boot_failed"]).exists()


def test_other_users_of_the_cluster_cannot_read_the_token(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(1)
    stage.wait_for("ready")
    job = stage.find_job(0)
    node = Node.objects.get()
    shown = slurm.run("scontrol", "show", "job", "-dd", job)
    shown += slurm.run("scontrol", "write", "batch_script", job, "-")
    assert "berth.real.hpc.0." in shown
    order = f"order.hpc.{node.client_token}"
    assert order not in shown
    assert order not in slurm.command_lines()


def test_nodes_survive_an_unresponsive_slurm_controller(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(1)
    stage.wait_for("ready")
    slurm.stop_controller()
    stage.resize(2)
    assert stage.states() == ["ready"], stage.story()
    stage.pool.refresh_from_db()
    assert "slurmctld" in stage.pool.last_error or "slurm controller" in stage.pool.last_error
    slurm.start_controller()
    stage.wait_for("ready", "ready")
    stage.pool.refresh_from_db()
    assert stage.pool.last_error == ""
    assert len(slurm.queue()) == 2


def test_end_of_an_allocation_is_announced_in_advance(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(2)
    stage.wait_for("ready", "ready")
    job = stage.find_job(1)
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=11")
    stage.wait(lambda: stage.states() and ScalingEvent.objects.filter(kind="interruption").exists())
    # The job's agent may report Slurm's signal before the listing states the time.
    assert ScalingEvent.objects.filter(kind="interruption")[0].reason in (
        f"the Slurm allocation {job} ends at its time limit",
        "the cluster announces the end of the allocation",
    )
    stage.wait(lambda: stage.states() == ["ready", "ready"] and len(slurm.queue()) == 2)


def test_job_cancelled_by_an_administrator_is_replaced(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(2)
    stage.wait_for("ready", "ready")
    former = stage.find_job(1)
    slurm.run("scancel", former)
    stage.wait(lambda: stage.states() == ["ready", "ready"] and stage.find_job(1) != former)
    reasons = " ".join(ScalingEvent.objects.values_list("reason", flat=True))
    ends = ("the cluster is ending the allocation", f"job {former} has ended", f"job {former} is ending")
    assert any(end in reasons for end in ends), reasons


def test_slurm_preemption_is_recorded_for_the_jobs_pods(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(1)
    stage.wait_for("ready")
    job = stage.find_job(0)
    urgent = slurm.run(
        "sbatch", "--parsable", "-p", "urgent", "-N", str(MACHINES), "--exclusive", "-o", "/dev/null",
        "--wrap", "sleep 600",
    )  # fmt: skip
    stage.reconcile_until(lambda: Node.objects.exclude(eviction_reason="").exists())
    reason = Node.objects.exclude(eviction_reason="").get().eviction_reason
    # The job's agent may report the end before Slurm lists the preemption.
    ends = (f"Slurm job {job} is ending", f"Slurm job {job} has ended", f"Slurm ended job {job}")
    assert reason.startswith(ends), reason
    assert reason.endswith(("Slurm preempted it", "before its time limit")), reason
    slurm.run("scancel", urgent.strip())
    stage.wait_for("ready")


def test_node_on_a_failed_machine_is_lost(stage: RealPool, slurm: SlurmCluster) -> None:
    stage.resize(2)
    stage.wait_for("ready", "ready")
    job = stage.find_job(1)
    machine = slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    slurm.run("scontrol", "update", f"NodeName={machine}", "State=DOWN", "Reason=power")
    stage.reconcile_until(lambda: ScalingEvent.objects.filter(kind="lost").exists())
    reason = ScalingEvent.objects.filter(kind="lost").latest("pk").reason
    assert reason == f"Slurm job {job} has ended on {machine}: its machine failed"
    stage.wait_for("ready", "ready")


def test_job_with_a_failed_setup_counts_as_a_failed_boot(stage: RealPool) -> None:
    stage.configure({**stage.settings, "setup": ["false"]})
    stage.resize(1)
    stage.reconcile_until(lambda: NodePool.objects.filter(boot_failures__gt=0).exists())
    stage.pool.refresh_from_db()
    assert "provider_settings.setup failed" in stage.pool.boot_error
    stage.resize(0)
