"""Tests on a real Slurm cluster with its accounting database."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from django.utils import timezone

from pools.providers.base import InstanceState, ProviderError, ProviderErrorKind
from pools.providers.slurm.client import SlurmClient
from pools.providers.slurm.programs import SlurmPrograms
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.settings import SlurmSettings, slurm_settings
from tests.contracts.slurm.accounting import missing_accounting, start_accounting, start_slurmdbd
from tests.contracts.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.contracts.slurm.rest import SlurmRestServer, missing_rest
from tests.journeys.installation import until
from tests.pools.slurm.stage import VARIABLES, order

MISSING = [*missing_programs(), *missing_accounting()]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(start_accounting) as running:
        yield running


@pytest.fixture
def slurm(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    yield cluster
    cluster.clear()


@pytest.fixture(scope="module")
def slurmrestd(cluster: SlurmCluster) -> SlurmRestServer:
    if missing := missing_rest():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    server = SlurmRestServer(cluster, has_accounting=True)
    server.start()
    return server


@pytest.fixture(params=["programs", "slurmrestd"])
def provider_of(request: pytest.FixtureRequest, slurm: SlurmCluster) -> Callable[..., SlurmProvider]:
    client: Callable[[SlurmSettings], SlurmClient] = partial(SlurmPrograms, commands=slurm.commands)
    if request.param == "slurmrestd":
        client = request.getfixturevalue("slurmrestd").client

    def make(**settings: str) -> SlurmProvider:
        values = slurm_settings({"partition": "gpu", "directory": str(slurm.root / "shared"), **settings})
        return SlurmProvider(
            values, client(values), request.param, variables=lambda order: VARIABLES, now=timezone.now
        )

    return make


def end_and_purge(slurm: SlurmCluster, provider: SlurmProvider, token: str) -> list[str]:
    """Launch jobs, cancel them, and wait until only the database lists them. Return their IDs."""
    created = [instance.instance_id for instance in provider.provision(order(token)).instances]
    provider.terminate("small", created)
    until(lambda: provider.list_instances("small") == (), 120)
    return created


def test_repeated_launch_request_finds_its_ended_jobs_in_the_accounting_database(
    slurm: SlurmCluster, provider_of: Callable[..., SlurmProvider]
) -> None:
    provider = provider_of()
    created = end_and_purge(slurm, provider, "a123456789ab")
    again = provider.provision(order("a123456789ab")).instances
    assert [instance.instance_id for instance in again] == created
    assert {instance.state for instance in again} == {InstanceState.GONE}
    assert slurm.queue() == []


def test_accounting_outage_blocks_only_requests_that_may_have_been_submitted(
    slurm: SlurmCluster, provider_of: Callable[..., SlurmProvider]
) -> None:
    provider = provider_of()
    end_and_purge(slurm, provider, "b123456789ab")
    slurm.stop_daemon("slurmdbd")
    with pytest.raises(ProviderError) as raised:
        provider.provision(order("b123456789ab"))
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    assert slurm.queue() == []
    first = replace(order("c123456789ab", count=1), is_repeated=False)
    assert len(provider.provision(first).instances) == 1
    assert len(provider.list_instances("small")) == 1
    start_slurmdbd(slurm)
    again = provider.provision(order("b123456789ab")).instances
    assert {instance.state for instance in again} == {InstanceState.GONE}


def test_unknown_account_and_qos_are_reported_in_the_preview(
    slurm: SlurmCluster, provider_of: Callable[..., SlurmProvider]
) -> None:
    if isinstance(provider_of().client, SlurmRest):
        pytest.skip("slurmrestd validates a job only when it is submitted")
    for settings in ({"account": "nobody"}, {"qos": "nothing"}):
        [finding] = provider_of(**settings).preview("small", order().shape).findings
        assert finding.message.startswith("Slurm rejects the pool's jobs: ")
        assert "Invalid" in finding.message
    assert provider_of(account="research").preview("small", order().shape).findings == ()


def test_launch_request_beyond_a_qos_submit_limit_is_partly_fulfilled(
    slurm: SlurmCluster, provider_of: Callable[..., SlurmProvider]
) -> None:
    provider = provider_of(qos="small")
    result = provider.provision(order("d123456789ab", count=2))
    assert len(result.instances) == 1
    assert result.message.startswith("Slurm accepted 1 job of 2: ")
    with pytest.raises(ProviderError) as raised:
        provider.provision(order("e123456789ab", count=1, start=2))
    assert raised.value.kind is ProviderErrorKind.QUOTA
