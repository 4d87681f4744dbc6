"""Tests for the Kubernetes and Slurm cluster problems reported by `berth doctor` and the pool page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from pools.providers.slurm.rest.client import SlurmRest
from pools.providers.slurm.rest.connection import Server
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.contracts.pods import poll_until
from tests.fakes.kubernetes import FakeCluster, serve
from tests.fakes.kubernetes.store import Rejection
from tests.fakes.slurm.rest import TOKEN, USER, FakeSlurmRest
from tests.fakes.slurm.rest import serve as serve_slurm
from tests.harness.samples import sample
from tests.pools.kubernetes.test_pool import Fleet
from tests.pools.slurm.stage import SlurmStage, make_slurm, slurm_stage

pytestmark = pytest.mark.django_db
OUTAGE = "Unable to contact slurm controller"


@pytest.fixture
def page(cast: Cast) -> Client:
    client = Client()
    client.force_login(cast.alice.user)
    return client


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    cluster = FakeCluster()
    cluster.add_node("gpu-0", gpus=2, labels={"gpus": "yes"})
    with serve(cluster) as url:
        fleet = Fleet(cluster, url)
        yield fleet
        fleet.clusters.close()


@pytest.fixture
def stage(cast: Cast, tmp_path: Path) -> SlurmStage:
    stage = slurm_stage(make_slurm(tmp_path))
    stage.resize(2)
    return stage


def find_problem(alice: Caller, page: Client, pool: str, name: str) -> str:
    findings = alice.get(f"node-pools/{pool}/diagnosis").json()["findings"]
    texts = {finding["name"]: finding["finding"] for finding in findings}
    shown = page.get(f"/node-pools/{pool}").content.decode()
    for text in texts.values():
        assert text in shown.replace("&#x27;", "'").replace("&quot;", '"')
    return str(texts.get(name, ""))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("rejection", "words"),
    sample(
        [
            (
                Rejection(401, "Unauthorized", "Unauthorized"),
                "{url}: the API server rejects the token in the pool's kubeconfig, which is invalid or has",
            ),
            (
                Rejection(403, "Forbidden", 'User "berth" cannot list resource "nodes" at the cluster scope'),
                'cannot list resource "nodes"',
            ),
        ],
        1,
    ),
)
def test_rejected_kubernetes_account_is_shown_until_the_cluster_accepts_it(
    fleet: Fleet, alice: Caller, page: Client, rejection: Rejection, words: str
) -> None:
    fleet.cluster.rejections["list", "nodes"] = rejection
    pool = fleet.create(nodes=1)

    def problem() -> str:
        fleet.reconcile(pool)
        return find_problem(alice, page, "prod", "provider")

    text = poll_until(problem, bool)
    assert "(credentials)" in text
    assert words.replace("{url}", fleet.url) in text
    fleet.cluster.rejections.clear()
    poll_until(problem, lambda text: text == "")
    fleet.settle(pool, state="ready")


def test_nodes_used_by_another_pool_are_not_reported_as_free(
    fleet: Fleet, alice: Caller, page: Client
) -> None:
    first, second = fleet.create(nodes=1), fleet.create("second", nodes=1)
    fleet.settle(first, state="ready")
    fleet.reconcile(second)
    assert "1 node of the cluster selected, 0 free" in find_problem(alice, page, "second", "provider")
    assert find_problem(alice, page, "prod", "provider") == ""
    assert second.nodes.count() == 0


@pytest.mark.heavy
def test_slurm_outage_is_reported_and_no_node_is_lost(stage: SlurmStage, alice: Caller, page: Client) -> None:
    stage.settle()
    stage.slurm.set(down=True)
    stage.pass_time(60)
    stage.reconcile()
    assert OUTAGE in find_problem(alice, page, "small", "provider")
    assert stage.states() == {0: "ready", 1: "ready"}
    stage.slurm.set(down=False)
    stage.settle()
    assert find_problem(alice, page, "small", "provider") == ""


@pytest.mark.heavy
def test_slurmrestd_outage_is_reported_and_no_node_is_lost(
    stage: SlurmStage, alice: Caller, page: Client
) -> None:
    def settle_through(rest: FakeSlurmRest) -> None:
        provider: Any = stage.provider
        server = Server(rest.url, USER, TOKEN)
        provider.client = SlurmRest(provider.settings, lambda: server, {}, now=lambda: stage.now)
        stage.settle()

    with serve_slurm(FakeSlurmRest(stage.slurm)) as rest:
        settle_through(rest)
    stage.pass_time(60)
    stage.reconcile()
    assert f"slurmrestd at {rest.url} cannot be reached" in find_problem(alice, page, "small", "provider")
    assert stage.states() == {0: "ready", 1: "ready"}
    with serve_slurm(FakeSlurmRest(stage.slurm)) as restarted:
        settle_through(restarted)
    assert find_problem(alice, page, "small", "provider") == ""


@pytest.mark.heavy
def test_slurm_time_limit_too_short_for_a_boot_is_reported(
    stage: SlurmStage, alice: Caller, page: Client
) -> None:
    stage.reconcile()
    for job in range(2):
        stage.slurm.change(job, TimeLimit="5:00", TimeLeft="5:00")
    stage.pass_time(15)
    stage.reconcile()
    problem = find_problem(alice, page, "small", "failed boots")
    assert problem.startswith("1 boot in a row failed.")
    assert "the time limit of Slurm job 1 is 5m, which leaves no time for work" in problem
