"""Tests for Python sessions and ports on a real Kubernetes cluster.

The pods of sessions call Berth over the network of their node. Berth reaches ports through the API server.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from berth.client import Client
from berth.client.errors import ClientError, Invalid
from berth.client.sessions.options import build_options
from tests.contracts.kubernetes.cluster import GPU
from tests.images.python_layer import python_layer
from tests.images.registry import Registry
from tests.journeys.installation import ROOT, Installation, InstallContext, until
from tests.journeys.on_kubernetes.link import link_to
from tests.journeys.on_kubernetes.prod import Prod, Users, sign_in_users
from tests.journeys.sessions.test_ports import Browser
from tests.support.ports import free_port

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
COMMON: Any = {"project": "vision", "cpus": 0.1, "memory_mib": 256, "start_timeout": 180.0}


@pytest.fixture(scope="module")
def gateway(prod: Prod) -> str:
    """Return the address of node-2 in its pod network, which is the only network that its pods can reach."""

    def address() -> str:
        pod = prod.api.get("/api/v1/namespaces/default/pods/theirs")
        return str(pod["status"].get("podIP") or "")

    route = subprocess.run(["ip", "-j", "route", "get", until(address)], capture_output=True, check=True)
    return str(json.loads(route.stdout)[0]["prefsrc"])


@pytest.fixture(scope="module")
def berth(installing: InstallContext, gateway: str) -> Iterator[Installation]:
    port = free_port()
    with link_to(port, gateway) as link:
        url = f"http://{gateway}:{link.port}"
        hosts = f"localhost,127.0.0.1,{gateway}"
        with installing(port, BERTH_PUBLIC_URL=url, BERTH_ALLOWED_HOSTS=hosts) as installation:
            yield installation


@pytest.fixture(scope="module")
def users(
    berth: Installation, prod: Prod, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Users:
    """Sign in, and create a pool with the node that can reach Berth."""
    users = sign_in_users(berth, registry, tmp_path_factory.mktemp("users"))
    users.admin.berth(
        "pool", "create", "prod", "--provider", "kubernetes", "--kubeconfig", str(prod.config),
        "--node-selector", "kubernetes.io/hostname=node-2", "--nodes", "1", "--gpus-per-node", "2",
        "--set", f"provider_settings={{gpu_resource: {GPU}, ports: api_server}}", "--set", "reconcile_tick=1",
    )  # fmt: skip
    for owner in (["research", "--department"], ["vision"]):
        users.admin.berth("quota", "set", *owner, "--pool", "prod", "--gpu", "2")
    return users


@pytest.fixture(scope="module")
def client(users: Users) -> Iterator[Client]:
    with users.dave.client() as client:
        yield client


@pytest.fixture(scope="module")
def image(registry: Registry) -> str:
    """Return an image with the client's Python, and a package for a workload's web server."""
    registry.push("vision/python", [python_layer("websockets")], tag="1", Env=["PATH=/bin"])
    return f"{registry.address}/vision/python:1"


def test_session_runs_functions_and_leaves_nothing_in_the_cluster(
    client: Client, prod: Prod, image: str
) -> None:
    def facts() -> tuple[str, str, str]:
        return os.environ["RANK"], os.environ["TOKEN"], os.environ["BERTH_GPUS"]

    with client.session(
        "prod", nodes=2, gpus=1, name="play", image=image, secrets=[{"name": "token", "env": "TOKEN"}],
        **COMMON,
    ) as session:  # fmt: skip
        assert session.broadcast(facts).result(120) == [("0", "swordfish", "1"), ("1", "swordfish", "1")]
        assert sum(session.map(pow, range(10), [2] * 10)) == 285
    until(lambda: client.workloads.get(session.id).phase == "completed")
    until(lambda: not prod.objects("pods"), details=lambda: prod.objects("pods"))
    until(lambda: not [each for each in prod.objects("secrets") if "service-account" not in each["type"]])


def test_call_on_a_deleted_pod_is_retried(client: Client, prod: Prod, image: str) -> None:
    def slow() -> str:
        import time

        time.sleep(3)
        return os.environ["BERTH_RUN"]

    with client.session("prod", gpus=1, image=image, name="lost", **COMMON) as session:
        future = session.submit(slow)
        until(lambda: client.workloads.get(session.id).phase == "running")
        (pod,) = prod.objects("pods")
        place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        prod.api.delete(place, 0)
        assert future.result(180) == "2"
    until(lambda: not prod.objects("pods"), details=lambda: prod.objects("pods"))


def test_session_without_a_client_ends_after_its_idle_timeout(client: Client, prod: Prod, image: str) -> None:
    options = build_options(
        "prod", 1, "vision", {"image": image, "name": "idle", "idle_timeout": 5, "cpus": 0.1}
    )
    session = client.workloads.find(client._transport.post("sessions", options.body())["name"])
    until(lambda: client.workloads.get(session.id).phase == "completed")
    assert client.workloads.get(session.id).message == "The client sent no request for 5 s."
    until(lambda: not prod.objects("pods"), details=lambda: prod.objects("pods"))


def test_session_on_kubernetes_requires_an_image(client: Client) -> None:
    with (
        pytest.raises(Invalid, match="only runs workloads with a container image"),
        client.session("prod", **COMMON),
    ):
        pass


def test_session_reports_an_image_without_python(client: Client, prod: Prod) -> None:
    options = build_options("prod", 1, "vision", {"image": prod.image, "name": "bare", "cpus": 0.1})
    workload = client.workloads.find(client._transport.post("sessions", options.body())["name"])
    reason = "pod worker-0 could not be started: the image has no program `python`."
    until(
        lambda: client.workloads.get(workload.id).message.endswith(f", after {reason}"),
        details=lambda: client.workloads.get(workload.id).message,
    )
    client.workloads.cancel(workload.id)
    until(lambda: not prod.objects("pods"), details=lambda: prod.objects("pods"))


def test_port_is_reachable_through_the_api_server(
    users: Users, client: Client, prod: Prod, image: str
) -> None:
    program = (ROOT / "tests" / "journeys" / "sessions" / "echo_server.py").read_text()
    only_loopback = (
        'import os; assert os.environ["BERTH_HOST"] == "0.0.0.0"; os.environ["BERTH_HOST"] = "127.0.0.1"\n'
    )
    client.workloads.submit({
        "name": "desk", "project": "vision", "pools": ["prod"], "kind": "interactive", "image": image,
        "ports": [{"name": "lab"}], "command": ["python", "-c", only_loopback + program],
        "roles": [{"name": "desk", "gpu": 1, "cpu": 0.1, "memory_mib": 128}], "grace_period_seconds": 1,
    })  # fmt: skip
    until(lambda: client.workloads.find("desk").phase == "running", details=lambda: prod.objects("pods"))
    browser = Browser(users.dave.berth("open", "desk", "--print").strip())
    until(lambda: browser.get("/").text == "desk in run 1")
    assert browser.exchange("hello") == "you said hello"
    with users.grace.client() as grace, pytest.raises(ClientError):
        grace._transport.post(f"workloads/{client.workloads.find('desk').id}/ports/lab/link")
    users.dave.berth("cancel", "desk")
    until(lambda: client.workloads.find("desk").phase == "cancelled")
    until(lambda: not prod.objects("pods"), details=lambda: prod.objects("pods"))
    assert browser.get("/").status_code in (403, 502)
