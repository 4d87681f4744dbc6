"""Tests for failures of a real slurmrestd: tokens, outages and lost responses."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.utils import timezone

from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.slurm.provider import SlurmProvider
from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.rest.connection import Server
from pools.providers.slurm.settings import slurm_settings
from tests.cli.workloads.lossy_proxy import LossyProxy
from tests.contracts.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.contracts.slurm.rest import SlurmRestServer, allow_tokens, missing_rest
from tests.pools.slurm.stage import VARIABLES, order

MISSING = [*missing_programs(), *missing_rest()]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: run `make slurm` as root"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster(allow_tokens) as running:
        yield running


@pytest.fixture
def server(cluster: SlurmCluster) -> Iterator[SlurmRestServer]:
    running = SlurmRestServer(cluster)
    running.start()
    yield running
    if running.name in cluster.processes:
        running.stop()
    cluster.clear()


def provider_of(server: SlurmRestServer, token: str = "", url: str = "", **settings: object) -> SlurmProvider:
    values = slurm_settings({
        "partition": "gpu", "directory": str(server.cluster.root / "shared"), "rest_url": url or server.url,
        "rest_user": server.user, "setup": [f"export TMPDIR={server.cluster.root}/tmp"], **settings,
    })  # fmt: skip
    access = Server(values.rest_url or "", server.user, token or server.token())
    client = SlurmRest(values, lambda: access, {}, now=timezone.now)
    return SlurmProvider(
        values, client, f"real-{server.port}", variables=lambda order: VARIABLES, now=timezone.now
    )


def failure(provider: SlurmProvider, token: str) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        provider.list_instances("small")
    assert token not in raised.value.message
    return raised.value


def test_expired_token_is_rejected_until_it_is_replaced(server: SlurmRestServer) -> None:
    token = server.token(seconds=1)
    created = provider_of(server).provision(order()).instances
    expired = provider_of(server, token)
    time.sleep(2)  # Slurm's own clock decides when a token has expired
    assert f"the token of user {server.user}" in failure(expired, token).message
    with pytest.raises(ProviderError):
        expired.provision(order("b123456789ab"))
    [finding] = provider_of(server, server.token(60)).preview("small", order().shape).findings
    assert finding.message.startswith("The Slurm token expires on ")
    listed = provider_of(server).list_instances("small")
    assert [each.instance_id for each in listed] == [each.instance_id for each in created]
    assert len(server.cluster.queue()) == 2


def test_slurm_token_with_a_wrong_signature_is_rejected(server: SlurmRestServer) -> None:
    head, claims, signature = server.token().split(".")
    token = f"{head}.{claims}.{signature[::-1]}"
    assert f"the token of user {server.user}" in failure(provider_of(server, token), token).message


def test_jobs_survive_an_outage_of_slurmrestd(server: SlurmRestServer) -> None:
    provider = provider_of(server)
    created = provider.provision(order()).instances
    server.stop()
    with pytest.raises(ProviderError, match="cannot be reached") as raised:
        provider.provision(order("b123456789ab", start=2))
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    server.start()
    assert [each.instance_id for each in provider.list_instances("small")] == [
        each.instance_id for each in created
    ]
    assert len(provider.provision(order("b123456789ab", start=2)).instances) == 2
    assert len(server.cluster.queue()) == 4


def test_submission_with_a_lost_response_is_not_repeated(server: SlurmRestServer) -> None:
    provider = provider_of(server)
    provider.list_instances("small")
    proxy = LossyProxy(server.url, losses=0)
    threading.Thread(target=proxy.serve, daemon=True).start()
    behind = provider_of(server, url=proxy.address)
    behind.list_instances("small")
    submit = behind.client.submit

    def lose(*arguments: object) -> object:
        proxy._losses = 1
        return submit(*arguments)  # type: ignore[arg-type]

    behind.client.submit = lose  # type: ignore[method-assign, assignment]
    with pytest.raises(ProviderError) as raised:
        behind.provision(order(count=1))
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    assert proxy.dropped == 1
    assert len(behind.provision(replace(order(count=1), is_repeated=True)).instances) == 1
    assert len(server.cluster.queue()) == 1
    proxy.close()


def test_additional_options_are_passed_to_slurm(server: SlurmRestServer) -> None:
    server.cluster.run(
        "scontrol", "create", "reservation=week", "StartTime=now", "Duration=300", "Nodes=n1,n3", "Users=root"
    )
    options = ["--reservation=week", "--licenses=matlab:2"]
    provider = provider_of(server, options=options, constraint="rack1", time_limit="2h", exclusive=False)
    [instance] = provider.provision(order(count=1)).instances
    shown = server.cluster.run("scontrol", "show", "job", instance.instance_id.partition("-")[0])
    server.cluster.clear()
    server.cluster.run("scontrol", "delete", "reservation=week")
    for text in (
        "TimeLimit=02:00:00", "Features=rack1", "Requeue=0", "Reservation=week", "Licenses=matlab:2",
        "OverSubscribe=OK", "TresPerNode=gres",
    ):  # fmt: skip
        assert text in shown


def test_rejected_job_reports_slurms_reason(server: SlurmRestServer) -> None:
    for settings, reason in (
        ({"constraint": "nonsense"}, "Invalid feature specification"),
        ({"options": ["--reservation=nothing"]}, "Requested reservation is invalid"),
    ):
        with pytest.raises(ProviderError, match=reason) as raised:
            provider_of(server, **settings).provision(order(count=1))
        assert raised.value.kind is ProviderErrorKind.SETTINGS
    assert server.cluster.queue() == []
