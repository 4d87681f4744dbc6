"""Tests for pending reasons over REST, as the scheduler loop computes them."""

from typing import Any

import pytest

from pools.models import Node
from tests.api.conftest import Caller
from tests.api.pools.test_pool_sizes import Cluster, create
from tests.cast import training
from tests.fakes.provider import FakeProvider
from tests.harness.samples import sample

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster(alice: Caller) -> Cluster:
    """Create a pool at its maximum of two nodes, each with two GPUs, 8 cores and 8 GiB of memory."""
    create(alice, 2)
    cluster = Cluster(FakeProvider(boots_immediately=True))
    cluster.run(15)
    assert cluster.ready() == 2
    return cluster


def submit(caller: Caller, name: str, **role: object) -> str:
    document = training(name, project="vision", pools=["small"], roles=[{"name": "worker", **role}])
    answer = caller.post("workloads", document)
    assert answer.status_code == 201, answer.content
    return str(answer.json()["id"])


def get_explanation(caller: Caller, workload_id: str) -> dict[str, Any]:
    return dict(caller.get(f"workloads/{workload_id}/explain").json())


@pytest.mark.shows("RAI-53")
@pytest.mark.parametrize(
    ("role", "sentence"),
    sample(
        [
            (
                {"replicas": 10_000, "gpu": 0},
                "Requests 10,000 pods, more than the pool provides at its maximum size (220 pods)",
            ),
            (
                {"replicas": 5, "gpu": 1},
                "Requests 5 GPUs, more than the pool provides at its maximum size (4 GPUs)",
            ),
        ],
        1,
    ),
)
def test_unschedulable_workload_does_not_block_other_workloads_in_the_same_cycle(
    cluster: Cluster, dave: Caller, role: dict[str, object], sentence: str
) -> None:
    impossible = submit(dave, "impossible", **role)
    small = submit(dave, "small", replicas=1, gpu=1)
    cluster.run(5)
    assert dave.get(f"workloads/{small}").json()["phase"] != "pending"
    answer = dave.get(f"workloads/{impossible}").json()
    assert (answer["phase"], answer["reason"]) == ("pending", "Unschedulable")
    explanation = get_explanation(dave, impossible)
    assert explanation["queue_position"] is None
    assert explanation["blockers"][0]["message"].startswith(sentence)
    assert dave.get("node-pools/small/queue").json()["items"] == []
    queue = explanation["queue"]["project"]
    assert (queue["requested"]["gpu"], queue["share"]["gpu"]) == (1, 1), "only the small workload counts"


@pytest.mark.heavy
def test_dry_run_reports_a_hundred_thousand_replicas_as_unschedulable(cluster: Cluster, dave: Caller) -> None:
    roles = [{"name": "worker", "replicas": 100_000, "gpu": 0}]
    document = training("huge", project="vision", pools=["small"], roles=roles)
    answer = dave("POST", "workloads", document, dry_run="true").json()
    assert answer["outcome"] == "unschedulable"


@pytest.mark.heavy
def test_first_blocker_names_memory_if_memory_is_short(cluster: Cluster, dave: Caller) -> None:
    submit(dave, "first", replicas=2, gpu=1, memory_mib="6Gi")
    cluster.run(5)
    pending = submit(dave, "second", replicas=1, gpu=1, memory_mib="6Gi")
    cluster.run(5)
    message = get_explanation(dave, pending)["blockers"][0]["message"]
    assert message == "Needs 6 GiB of memory, 4 GiB is free."


@pytest.mark.heavy
@pytest.mark.shows("RAI-53")
def test_pending_reason_counts_the_nodes_that_do_not_match_the_selector(
    cluster: Cluster, dave: Caller
) -> None:
    first = Node.objects.filter(pool__name="small").order_by("ordinal")[0]
    Node.objects.filter(pk=first.pk).update(labels={"disk": "nvme"})
    pending = submit(dave, "picky", replicas=1, gpu=1, node_selector={"disk": "ssd"})
    cluster.run(5)
    blocker = get_explanation(dave, pending)["blockers"][0]
    assert blocker["reason"] == "NoMatchingNode"
    assert "2 nodes" in blocker["message"]
    assert "disk" in blocker["message"]
