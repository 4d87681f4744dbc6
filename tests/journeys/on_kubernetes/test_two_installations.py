"""Test two installations that share a Kubernetes cluster and use the same names for pools and workloads."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kubernetes import FakeCluster, serve
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, InstallContext, until
from tests.journeys.on_kubernetes.test_kubernetes import create_pool, find_pods, submit, write_kubeconfig

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    for number in range(3):
        cluster.add_node(f"gpu-{number}", gpus=2, labels={"gpus": "yes"})
    return cluster


@pytest.fixture
def installations(
    installing: InstallContext, cluster: FakeCluster, tmp_path: Path
) -> Iterator[list[Installation]]:
    with (
        serve(cluster) as url,
        installing(BERTH_INSTALLATION="first") as first,
        installing(BERTH_INSTALLATION="second") as second,
    ):
        for number, berth in enumerate((first, second)):
            admin = sign_in(berth, "admin", tmp_path / f"admin-{number}")
            create_pool(admin, write_kubeconfig(tmp_path / f"kubeconfig-{number}", url))
        yield [first, second]


def pods_by_namespace(cluster: FakeCluster) -> dict[str, set[str]]:
    pods: dict[str, set[str]] = {}
    for pod in find_pods(cluster, "train"):
        pods.setdefault(pod["metadata"]["namespace"], set()).add(pod["metadata"]["uid"])
    return pods


def foreign_gpus(admin: Terminal) -> float:
    nodes: list[Any] = list(admin.client().nodes.list(pool="prod"))
    return sum(node.foreign.gpus for node in nodes if node.foreign)


def test_two_installations_on_one_cluster_do_not_change_each_others_pods(
    installations: list[Installation], cluster: FakeCluster, tmp_path: Path
) -> None:
    _, second = installations
    daves = [
        sign_in(berth, "dave", tmp_path / f"dave-{number}") for number, berth in enumerate(installations)
    ]
    admins = [Terminal(dave.address, tmp_path / f"admin-{number}") for number, dave in enumerate(daves)]

    def reach(number: int, phase: str) -> None:
        workloads = daves[number].client().workloads
        until(lambda: workloads.find("train").phase == phase, details=lambda: workloads.find("train"))

    for number, dave in enumerate(daves):
        submit(dave, "train", "vision")
        reach(number, "running")
    pods = pods_by_namespace(cluster)
    assert [len(uids) for uids in pods.values()] == [2, 2], "each installation has its own namespace"
    until(lambda: [foreign_gpus(admin) for admin in admins] == [2, 2])

    # A restarted installation adopts its own pods, and does not clean up those of the other.
    second.end(signal.SIGKILL)
    second.start("--demo")
    reach(1, "running")
    daves[0].berth("cancel", "train")
    reach(0, "cancelled")
    until(lambda: len(pods_by_namespace(cluster)) == 1)
    until(lambda: foreign_gpus(admins[1]) == 0)
    [(namespace, left)] = pods_by_namespace(cluster).items()
    assert left == pods[namespace], "the same pods still run"
    reach(1, "running")
