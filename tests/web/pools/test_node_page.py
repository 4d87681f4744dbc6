"""Tests for the node page: actions, GPUs, pods and events."""

import re

import pytest
from django.test import Client

from pools.models import Node
from scheduler.models import Reservation
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture
def node(cast: Cast) -> Node:
    node = make.node(cast.pool)
    train = make.workload(cast.vision, "train", phase="running", run=1, started_at=make.ago(minutes=9))
    make.place(train, node, [0])
    make.scaling(cast.pool, "ready", "The agent answers.", at=make.ago(minutes=9), node=node)
    return node


def test_node_page_offers_the_actions_that_the_node_state_allows(sign_in: SignIn, node: Node) -> None:
    for state, actions in (
        ("ready", {"cordon", "drain", "terminate"}),
        ("cordoned", {"uncordon", "drain", "terminate"}),
    ):
        Node.objects.filter(pk=node.pk).update(state=state)
        text = sign_in("alice").get(f"/nodes/{node.name}").content.decode()
        offered = {
            step for step in ("cordon", "uncordon", "drain", "terminate") if f'id="node-{step}"' in text
        }
        assert offered == actions
    assert 'id="node-' not in sign_in("dave").get(f"/nodes/{node.name}").content.decode()


def test_node_page_lists_the_nodes_events(sign_in: SignIn, node: Node) -> None:
    assert "The agent answers." in sign_in("alice").get(f"/nodes/{node.name}").content.decode()


@pytest.mark.heavy
def test_node_page_links_to_the_workloads_on_the_node(sign_in: SignIn, node: Node) -> None:
    text = sign_in("dave").get(f"/nodes/{node.name}/contents").content.decode()
    links = re.findall(r'<a [^>]*href="/workloads/[^>]*>(?:<[^>]+>)*train\b', text)
    assert len(links) == 2  # one link is on the GPU and one among the pods
    assert f"1 of {node.gpus} allocated" in text


@pytest.mark.heavy
def test_node_page_lists_the_pods_of_a_workload_in_one_row_per_state(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, 7, gpus=8)
    gang = make.workload(cast.vision, "gang", phase="running", run=1, started_at=make.ago(minutes=9))
    for index, device in enumerate((0, 1, 5)):
        make.place(gang, node, [device], index=index)
    make.place(gang, node, [6], index=3, state="starting")
    groups = sign_in("dave").get(f"/nodes/{node.name}/contents").context["groups"]
    shown = [(group.first_pod.state, group.names, group.devices, group.gpu_milli) for group in groups]
    assert sorted(shown) == [
        ("running", "worker-0 to worker-2", "0, 1, 5", 3000),
        ("starting", "worker-3", "6", 1000),
    ]
    text = sign_in("dave").get(f"/nodes/{node.name}/contents").content.decode()
    rows = text.split('id="pods-title"')[1]
    assert rows.count(">gang</a>") == 2 and "3 pods" in rows


def test_node_page_hides_workloads_of_other_projects(sign_in: SignIn, node: Node) -> None:
    text = sign_in("grace").get(f"/nodes/{node.name}/contents").content.decode()
    assert "train" not in text
    assert "1 pod in projects you cannot see" in text


def test_workloads_on_a_node_are_hidden_from_users_without_a_role(sign_in: SignIn, node: Node) -> None:
    assert sign_in("frank").get(f"/nodes/{node.name}/contents").status_code == 404
    assert Client().get(f"/nodes/{node.name}/contents").status_code == 302


@pytest.mark.heavy
def test_booting_node_shows_its_progress_and_reservation(sign_in: SignIn, cast: Cast) -> None:
    booting = make.node(cast.pool, 5, state="booting", gpus=2, ready_at=make.ago(minutes=-3))
    waiting = make.workload(cast.vision, "waiting", phase="reserved", replicas=2)
    for device in range(2):
        Reservation.objects.create(
            workload=waiting, role="worker", index=device, node=booting, devices=[device], gpu_milli=1000
        )
    page = sign_in("alice").get(f"/nodes/{booting.name}")
    assert [(step["title"], step["state"]) for step in page.context["boot_steps"]] == [
        ("Machine", "done"),
        ("Ready", "running"),
    ]
    text = page.content.decode()
    assert "Node is booting" in text and "Expected to be ready" in text
    assert "Expected to be ready" in sign_in("alice").get(f"/node-pools/{cast.pool}").content.decode()
    contents = sign_in("alice").get(f"/nodes/{booting.name}/contents").content.decode()
    assert contents.count("vision/waiting") == 1 + 2  # named once, and in the tooltip of each GPU
    assert "2 GPUs reserved for vision/waiting" in contents
    assert "No pods" not in contents and "No events" not in text, "a booting node has neither"


def test_drain_and_terminate_dialogs_show_the_timeout_and_the_lost_work(sign_in: SignIn, node: Node) -> None:
    alice = sign_in("alice")
    drain = alice.get(f"/nodes/{node.name}/drain").content.decode()
    assert "Running pods have 10 min to finish. Then the node is terminated and replaced." in drain
    lost_work = f"/nodes/{node.name}/lost-work"
    assert f'hx-get="{lost_work}?drain=1"' in drain
    assert f'hx-get="{lost_work}"' in alice.get(f"/nodes/{node.name}/terminate").content.decode()
    text = alice.get(lost_work).content.decode()
    assert "<strong>Up to 9.0 GPU-min of work will be lost.</strong>" in text
    drained = alice.get(f"{lost_work}?drain=1").content.decode()
    assert "Up to 9.0 GPU-min of work can be lost if pods do not finish in time." in drained
    assert sign_in("dave").get(lost_work).status_code == 403
