"""Contract tests for every provider."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pools import services
from pools.joining import secrets
from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import Connection, parse_kubeconfig
from pools.kubernetes.cluster import Clusters, PoolAccess
from pools.kubernetes.settings import KubernetesSettings, kubernetes_settings
from pools.models import NodePool, SshHost
from pools.providers.base import (
    InstanceState,
    LaunchRequest,
    Provider,
    ProviderError,
    ProviderErrorKind,
    ProvisionResult,
    Shape,
)
from pools.providers.hardware import Machine, simulated_devices
from pools.providers.kubernetes import KubernetesProvider
from pools.providers.local import LocalProvider
from pools.providers.preview import Severity
from pools.providers.slurm.client import SlurmClient
from pools.providers.slurm.programs import SlurmPrograms
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.rest.connection import Server
from pools.providers.slurm.rest.versions import UNDERSTOOD
from pools.providers.slurm.settings import SlurmSettings, slurm_settings
from pools.providers.ssh.maintenance import SshMaintenance
from pools.providers.ssh.provider import SshProvider
from pools.providers.ssh.task_runner import TaskRunner
from pools.providers.static import StaticProvider
from pools.services.joining import MachineReport
from pools.services.ssh.hosts import settings_digest
from tests import factories
from tests.contracts.kubernetes.cluster import GPU, nodes_without_machines, with_shipped_role
from tests.contracts.slurm.cluster import SlurmCluster
from tests.contracts.slurm.rest import SlurmRestServer
from tests.fakes.kubernetes import FakeCluster, serve
from tests.fakes.provider import FakeProvider
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm.rest import TOKEN, USER, FakeSlurmRest
from tests.fakes.slurm.rest import serve as serve_slurm
from tests.journeys.installation import until
from tests.pools.aws.ec2_account import ec2_account
from tests.pools.stage import START, SYSTEM


def order(token: str = "t-1", count: int = 2, start: int = 0, pool: str = "small") -> LaunchRequest:
    return LaunchRequest(pool, count, token, start, Shape(4000, 8192, gpus=2), {"berth": "test"})


INSTALLATIONS = itertools.count()
pytestmark = pytest.mark.django_db
SERVER = "https://berth.example.org"


PROVIDERS = [
    "local", "fake", "static", "ssh", "aws", "kubernetes", "slurm", "slurm over slurmrestd v0.0.42",
    "slurm over slurmrestd v0.0.38",
    pytest.param("aws on bare moto", marks=pytest.mark.heavy),
    pytest.param("real slurm", marks=pytest.mark.heavy),
    *(pytest.param(f"real slurm over slurmrestd {each}", marks=pytest.mark.heavy) for each in UNDERSTOOD),
    pytest.param("real kubernetes", marks=pytest.mark.heavy),
]  # fmt: skip


@pytest.fixture(params=PROVIDERS)
def provider(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Provider]:
    """Return a provider with capacity for four instances of two GPUs. Only Moto has no capacity limit."""
    match request.param:
        case "fake":
            yield FakeProvider(capacity=4)
        case "local":
            yield LocalProvider(tmp_path / "instances", Machine(4000, 8192, simulated_devices(8)))
        case "static":
            yield static_provider()
        case "ssh":
            monkeypatch.setattr("django.conf.settings.BERTH_PUBLIC_URL", SERVER)
            yield ssh_provider()
        case "kubernetes":
            with kubernetes_provider() as provider:
                yield provider
        case "real kubernetes":
            with real_kubernetes_provider(request.getfixturevalue("kubeconfig")) as provider:
                yield provider
        case name if "slurm" in name:
            yield from slurm_providers(request, tmp_path)
        case "aws":
            with ec2_account(monkeypatch) as place:
                place.proxy.capacity["on-demand"] = 4
                yield place.provider()
        case "aws on bare moto":
            with ec2_account(monkeypatch, with_proxy=False) as place:
                yield place.provider()


def slurm_providers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    """Yield the provider of a simulated or real Slurm cluster, through Slurm's programs or slurmrestd."""
    match request.param:
        case "slurm":
            commands = FakeSlurm(tmp_path / "slurm").commands
            yield slurm_provider(tmp_path, lambda settings: SlurmPrograms(settings, commands))
        case "slurm over slurmrestd v0.0.42" | "slurm over slurmrestd v0.0.38":
            version = request.param.rpartition(" ")[2]
            with serve_slurm(FakeSlurmRest(FakeSlurm(tmp_path / "slurm"), version)) as rest:
                server = Server(rest.url, USER, TOKEN)
                yield slurm_provider(
                    tmp_path, lambda settings: SlurmRest(settings, lambda: server, {}, now=lambda: START)
                )
        case "real slurm":
            cluster: SlurmCluster = request.getfixturevalue("slurm")
            yield slurm_provider(cluster.root, lambda settings: SlurmPrograms(settings, cluster.commands))
            cluster.clear()
        case name if name.startswith("real slurm over slurmrestd"):
            servers: dict[str, SlurmRestServer] = request.getfixturevalue("slurmrestd")
            if (version := name.rpartition(" ")[2]) not in servers:
                pytest.skip(f"the installed slurmrestd offers {', '.join(servers)}")
            running = servers[version]
            yield slurm_provider(running.cluster.root, running.client)
            running.cluster.clear()


@contextmanager
def kubernetes_provider() -> Iterator[Provider]:
    """Yield the provider of a simulated Kubernetes cluster with four nodes."""
    cluster = FakeCluster()
    for number in range(4):
        cluster.add_node(f"node-{number}", gpus=2)
    with serve(cluster) as url, provider_on_cluster(Connection(url), KubernetesSettings()) as provider:
        yield provider


@contextmanager
def real_kubernetes_provider(kubeconfig: str) -> Iterator[Provider]:
    """Yield the provider of four new nodes of a real cluster, with the permissions of the shipped role."""
    name = f"contract-{next(INSTALLATIONS)}"
    settings = kubernetes_settings({"node_selector": {"berth.dev/contract": name}, "gpu_resource": GPU})
    api = Api(parse_kubeconfig(kubeconfig))
    names = [f"{name}-{number}" for number in range(4)]
    connection = parse_kubeconfig(with_shipped_role(kubeconfig))
    with (
        nodes_without_machines(api, names, dict(settings.node_selector)),
        provider_on_cluster(connection, settings) as provider,
    ):
        yield provider
    api.close()


@contextmanager
def provider_on_cluster(connection: Connection, settings: KubernetesSettings) -> Iterator[Provider]:
    """Yield the provider of a Kubernetes cluster whose nodes belong to two pools."""
    for name in ("small", "large"):
        factories.pool(name, gpus=2)
    clusters = Clusters(lambda: "test")
    access = PoolAccess(clusters.get(connection), settings)
    yield KubernetesProvider(lambda: access, lambda: nullcontext(access), lambda: START)
    clusters.close()


def static_provider() -> Provider:
    """Return a static provider whose two pools have four machines each."""
    shape = {"provider": "static", "runtime": "fake", "gpus_per_node": 2, "cpu_milli": 4000}
    for name in ("small", "large"):
        pool = services.create_pool(actor=SYSTEM, name=name, nodes=(0, 8), memory_mib=8192, **shape)
        for number in range(4):
            _, token = services.issue_join_token(
                actor=SYSTEM, pool=pool, lifetime=timedelta(hours=1), at=START
            )
            gpus = f"GPU-{number}a", f"GPU-{number}b"
            measured = MachineReport(f"m{number}", f"10.0.0.{number}", 8000, 16384, gpus)
            services.join(pool_name=name, token=token, measured=measured, at=START)
    return StaticProvider(lambda: START)


def ssh_provider() -> Provider:
    """Return an SSH provider of two pools with four hosts each. Agents have joined on all hosts."""
    for name in ("small", "large"):
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0bW1JUrYgBZqCHbBBXhcbvOjs8xpJ9fCOGTHsRHDU5"
        hosts = [
            {"name": f"{name}-{n}", "address": f"{name}-{n}.example.org", "host_key": key} for n in range(4)
        ]
        services.create_pool(
            actor=SYSTEM, name=name, nodes=(0, 8), provider="ssh", runtime="fake", gpus_per_node=2,
            cpu_milli=4000, memory_mib=8192, provider_settings={"hosts": hosts},
        )  # fmt: skip
    for host in SshHost.objects.select_related("pool"):
        gpus = f"GPU-{host.pk}a", f"GPU-{host.pk}b"
        measured = MachineReport("any", "10.0.0.1", 8000, 16384, gpus, machine_id=f"machine-{host.pk:016}")
        token = secrets.host_join_token(host.pk, host.join_version)
        services.join(pool_name=host.pool.name, token=token, measured=measured, at=START)
        digest = settings_digest(host.settings, SERVER, "")
        SshHost.objects.filter(pk=host.pk).update(applied=digest, touched_at=START)
    upkeep = SshMaintenance(lambda: START, lambda: "test", TaskRunner())
    return SshProvider(lambda: START, upkeep, NodePool(name="small"))


class StartedJobs(SlurmProvider):
    """A Slurm provider that waits until Slurm has started the requested jobs."""

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        message = super().provision(order).message

        def started() -> ProvisionResult | None:
            result = super(StartedJobs, self).provision(order)
            is_waiting = any(instance.state is InstanceState.QUEUED for instance in result.instances)
            return None if is_waiting else replace(result, message=message)

        result = until(started, 60)
        assert result is not None
        return result


def slurm_provider(root: Path, client: Callable[[SlurmSettings], SlurmClient]) -> Provider:
    # Job IDs start at one in each cluster, so jobs would find the directories of former clusters in /tmp.
    setup = [f"export TMPDIR={root}/tmp"]
    settings = slurm_settings({"partition": "gpu", "directory": str(root / "shared"), "setup": setup})
    variables = {"url": "http://127.0.0.1:9", "pool": "small", "token": "s3cret"}
    return StartedJobs(
        settings, client(settings), f"contract-{next(INSTALLATIONS)}",
        variables=lambda order: variables, now=lambda: START,
    )  # fmt: skip


@pytest.fixture
def provider_with_limited_capacity(request: pytest.FixtureRequest, provider: Provider) -> Provider:
    if "bare moto" in request.node.name:
        pytest.skip("moto never runs out of machines")
    if "slurm" in request.node.name:
        pytest.skip("Slurm queues what exceeds its capacity")
    return provider


def test_launch_request_returns_instances_with_consecutive_ordinals(provider: Provider) -> None:
    created = provider.provision(order(count=2, start=3)).instances
    assert [instance.ordinal for instance in created] == [3, 4]
    assert {instance.client_token for instance in created} == {"t-1"}
    assert len({instance.instance_id for instance in created}) == 2
    assert all(len(instance.devices) == 2 for instance in created)
    assert provider.list_instances("small") == created


def test_repeated_launch_request_returns_the_same_instances(provider: Provider) -> None:
    first = provider.provision(order())
    assert provider.provision(order()) == first
    assert len(provider.list_instances("small")) == 2


def test_repeated_launch_request_does_not_revive_terminated_instances(provider: Provider) -> None:
    created = provider.provision(order()).instances
    provider.terminate("small", [instance.instance_id for instance in created])
    again = provider.provision(order()).instances
    assert {instance.state for instance in again} <= ENDED_STATES
    assert living_ordinals(provider) == []


def test_launch_request_beyond_capacity_is_partly_fulfilled_with_a_reason(
    provider_with_limited_capacity: Provider,
) -> None:
    result = provider_with_limited_capacity.provision(order(count=6))
    assert len(result.instances) == 4
    assert result.message
    with pytest.raises(ProviderError) as raised:
        provider_with_limited_capacity.provision(order("t-2", start=4))
    assert raised.value.kind == ProviderErrorKind.CAPACITY


@pytest.mark.every_case
def test_terminated_instance_frees_capacity(provider: Provider) -> None:
    created = provider.provision(order(count=4)).instances
    provider.terminate("small", [created[1].instance_id])
    assert living_ordinals(provider) == [0, 2, 3]
    again = provider.provision(order("t-2", count=1, start=4)).instances
    assert len(again) == 1
    assert len(living_ordinals(provider)) == 4


def test_termination_of_ended_or_unknown_instances_succeeds(provider: Provider) -> None:
    created = provider.provision(order()).instances
    names = [instance.instance_id for instance in created]
    for _ in range(2):
        provider.terminate("small", [*names, "never-heard-of"])
    assert living_ordinals(provider) == []


def test_pool_lists_and_terminates_only_its_own_instances(provider: Provider) -> None:
    provider.provision(order())
    other_instances = provider.provision(order("t-2", pool="large")).instances
    provider.terminate("small", [instance.instance_id for instance in other_instances])
    assert len(provider.list_instances("small")) == 2
    assert len([i for i in provider.list_instances("large") if i.state == InstanceState.READY]) == 2
    assert provider.list_instances("none") == ()


def test_provider_preview_is_repeatable_and_has_no_side_effects(provider: Provider) -> None:
    shown = provider.preview("small", order().shape)
    assert provider.preview("small", order().shape) == shown
    assert shown.source or not shown.nodes
    assert not [finding for finding in shown.findings if finding.severity == Severity.ERROR]
    assert provider.list_instances("small") == ()
    assert len(provider.provision(order(count=4)).instances) == 4


def living_ordinals(provider: Provider) -> list[int]:
    """Return the ordinals of the instances that incur costs."""
    listed = provider.list_instances("small")
    return [instance.ordinal for instance in listed if instance.state not in ENDED_STATES]


ENDED_STATES = {InstanceState.ENDING, InstanceState.GONE}
