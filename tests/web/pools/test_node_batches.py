"""Tests for actions on several nodes of a pool at once."""

import re

import pytest
from django.test import Client

from pools.models import Node, NodePool, ScalingEvent
from pools.web import node_batches
from projects.models import Audit
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture
def pool(cast: Cast) -> NodePool:
    pool = make.pool("train", gpus=2)
    for ordinal in range(4):
        make.node(pool, ordinal, state="cordoned" if ordinal else "ready")
    return pool


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


def states(pool: NodePool) -> dict[str, str]:
    return dict(pool.nodes.order_by("ordinal").values_list("name", "state"))


def confirmed_names(text: str) -> str:
    names = re.search(r'name="nodes" value="([^"]*)"', text)
    assert names
    return names[1]


def test_all_cordoned_nodes_are_uncordoned_after_a_confirmation(pool: NodePool, alice: Client) -> None:
    path = "/node-pools/train/nodes/uncordon"
    confirmation = alice.get(f"{path}?state=cordoned").content.decode()
    assert "Uncordon 3 nodes?" in confirmation
    assert confirmed_names(confirmation) == "train-1 train-2 train-3"
    # A node that another admin cordons meanwhile was not counted, so it stays cordoned.
    Node.objects.filter(name="train-0").update(state="cordoned")
    answer = alice.post(path, {"nodes": confirmed_names(confirmation)}, follow=True)
    assert "3 nodes are uncordoned." in answer.content.decode()
    assert states(pool) == {"train-0": "cordoned", "train-1": "ready", "train-2": "ready", "train-3": "ready"}
    assert ScalingEvent.objects.filter(pool=pool, kind="uncordon").count() == 3
    assert Audit.objects.filter(action="uncordon").count() == 3


def test_confirmation_states_how_many_nodes_exceed_one_batch(
    pool: NodePool, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/node-pools/train/nodes/uncordon?state=cordoned"
    assert "Repeat the action" not in alice.get(path).content.decode()
    monkeypatch.setattr(node_batches, "MAX_NODES", 2)
    confirmation = alice.get(path).content.decode()
    assert "Uncordon 2 nodes?" in confirmation
    assert "At most 2 nodes are changed at a time. Repeat the action for the other 1." in confirmation


def test_repeated_and_impossible_changes_are_reported_per_node(pool: NodePool, alice: Client) -> None:
    Node.objects.filter(name="train-3").update(state="booting")
    path = "/node-pools/train/nodes/cordon"
    confirmation = alice.get(f"{path}?node=train-0&node=train-1&node=train-3").content.decode()
    assert "Cordon 1 node?" in confirmation and confirmed_names(confirmation) == "train-0"
    assert "The action does not apply to:" in confirmation
    names = {"nodes": "train-0 train-1 train-3 train-9", "reason": "fan is loud"}
    text = alice.post(path, names, follow=True).content.decode()
    assert "1 node is cordoned. 1 node was cordoned before." in text
    assert "Cannot cordon node train-3, because it is booting." in text
    assert ScalingEvent.objects.get(pool=pool, kind="cordon").reason == "cordon by alice: fan is loud"
    again = alice.post(path, names, follow=True).content.decode()
    assert "0 nodes are cordoned. 2 nodes were cordoned before." in again


def test_draining_several_nodes_lists_the_affected_workloads(
    cast: Cast, pool: NodePool, alice: Client
) -> None:
    work = make.workload(cast.vision, "sweep", phase="running", run=1)
    make.place(work, pool.nodes.get(ordinal=0), [0])
    path = "/node-pools/train/nodes/drain"
    confirmation = alice.get(f"{path}?node=train-0&node=train-2").content.decode()
    assert "Drain 2 nodes?" in confirmation and "<li>vision/sweep</li>" in confirmation
    alice.post(path, {"nodes": confirmed_names(confirmation), "reason": "new driver"})
    drained = pool.nodes.filter(state="draining").values_list("name", "drain_reason")
    assert sorted(drained) == [("train-0", "new driver"), ("train-2", "new driver")]


def test_nodes_of_other_pools_and_tenants_cannot_be_changed(
    cast: Cast, pool: NodePool, alice: Client, sign_in: SignIn
) -> None:
    other = make.node(make.pool("other"))
    alice.post("/node-pools/train/nodes/cordon", {"nodes": other.name})
    other.refresh_from_db()
    assert other.state == "ready"
    for step in ("cordon", "uncordon", "drain"):
        path = f"/node-pools/train/nodes/{step}"
        assert sign_in("dave").get(f"{path}?node=train-0").status_code in (403, 404)
        assert sign_in("dave").post(path, {"nodes": "train-0 train-1"}).status_code in (403, 404)
    assert states(pool)["train-0"] == "ready" and states(pool)["train-1"] == "cordoned"
