"""Test workloads of all kinds on a real Kubernetes cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.client import Client
from berth.client.errors import Invalid
from tests.images.registry import Registry
from tests.journeys.command import Terminal
from tests.journeys.installation import Installation, until
from tests.journeys.on_kubernetes.prod import Prod, Users, create_pool, sign_in_users
from tests.journeys.sessions.test_ports import Browser

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def users(
    berth: Installation, prod: Prod, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Users:
    return sign_in_users(berth, registry, tmp_path_factory.mktemp("users"))


@pytest.fixture(scope="module", autouse=True)
def _pool(prod: Prod, users: Users) -> None:
    create_pool(users.admin, prod)


def submit(
    terminal: Terminal, prod: Prod, name: str, script: str, *, project: str = "vision",
    exits: int = 0, role: dict[str, Any] | None = None, **fields: Any,
) -> None:  # fmt: skip
    """Submit a workload of two pods that run a shell script in an image from a private registry."""
    values = {"name": "worker", "replicas": 2, "gpu": 1, "cpu": 0.1, "memory_mib": 32, **(role or {})}
    worker = {key: value for key, value in values.items() if value is not None}
    document = {
        "name": name, "project": project, "pools": ["prod"], "image": prod.image, "grace_period_seconds": 20,
        "roles": [{**worker, "command": ["sh", "-c", script]}], **fields,
    }  # fmt: skip
    terminal.berth("submit", "-f", "-", stdin=json.dumps(document), exits=exits)


def phase(client: Client, name: str) -> str:
    return str(client.workloads.find(name).phase)


def reach(client: Client, prod: Prod, name: str, wanted: str) -> None:
    until(
        lambda: phase(client, name) == wanted,
        details=lambda: (client.workloads.find(name).message, prod.objects("pods")),
    )


def test_elastic_workload_scales_up_and_receives_its_secret(prod: Prod, users: Users) -> None:
    client = users.dave.client()
    script = 'test "$TOKEN" = swordfish && echo "has the secret"; exec sleep 600'
    submit(
        users.dave, prod, "grows", script, kind="elastic", role={"replicas": None, "min": 1, "max": 3},
        secrets=[{"name": "token", "env": "TOKEN"}], grace_period_seconds=1,
    )  # fmt: skip

    def running() -> int:
        pods = client.workloads.pods(client.workloads.find("grows").id)
        return [pod.state for pod in pods].count("running")

    until(lambda: running() == 3, details=lambda: client.workloads.find("grows").message)
    until(lambda: "has the secret" in users.dave.berth("logs", "grows"))
    users.dave.berth("cancel", "grows")
    reach(client, prod, "grows", "cancelled")


def test_pods_start_in_a_directory_with_the_code_that_was_sent(
    prod: Prod, users: Users, tmp_path: Path
) -> None:
    checkout = tmp_path / "digits"
    (checkout / "src").mkdir(parents=True)
    (checkout / "src" / "train.sh").write_text('echo "loss $1" && touch "$BERTH_CODE_DIR/written"\n')
    document = {
        "name": "digits", "project": "vision", "pools": ["prod"], "image": prod.image, "code": ".",
        "grace_period_seconds": 1, "roles": [{
            "name": "worker", "replicas": 2, "gpu": 1, "cpu": 0.5, "memory_mib": 32,
            "command": ["sh", "-c", 'test ! -e written && sh src/train.sh 0.5 && pwd'],
        }],
    }  # fmt: skip
    (checkout / "train.json").write_text(json.dumps(document))
    users.dave.berth("submit", "-f", str(checkout / "train.json"))
    client = users.dave.client()
    reach(client, prod, "digits", "completed")
    log = client.workloads.log(client.workloads.find("digits").id).data.decode()
    assert log.split("\n")[:2] == ["loss 0.5", "/berth/pod/code"]


def test_results_and_files_of_a_failed_pod_outlive_its_containers(
    prod: Prod, users: Users, tmp_path: Path
) -> None:
    client = users.dave.client()
    script = 'cd "$BERTH_POD_DIR" && mkdir results && echo 0.5 > results/loss && echo 41 > step; exit 3'
    submit(
        users.dave, prod, "crash", script, role={"replicas": 1}, outputs=["results"],
        keep_failed_pod="10m", grace_period_seconds=1,
    )  # fmt: skip
    reach(client, prod, "crash", "failed")
    (pod,) = [each for each in prod.objects("pods") if "crash" in str(each["metadata"]["annotations"])]
    assert pod["status"]["phase"] == "Failed", "its GPU is free in the cluster"
    until(lambda: "stored" in users.dave.berth("outputs", "list", "crash"))
    users.dave.berth("outputs", "download", "crash", "results/loss", "--to", str(tmp_path / "best"))
    assert [path.read_text() for path in (tmp_path / "best").rglob("loss")] == ["0.5\n"]
    assert users.dave.berth("files", "cat", "crash", "pod/step") == "41\n"


def test_port_of_an_interactive_workload_opens_in_a_browser(prod: Prod, users: Users) -> None:
    client = users.dave.client()
    script = 'mkdir www && echo desk > www/index.html && exec httpd -f -p "$BERTH_HOST:$BERTH_PORT" -h www'
    submit(
        users.dave, prod, "desk", script, kind="interactive", ports=[{"name": "lab"}],
        role={"replicas": 1}, grace_period_seconds=1,
    )  # fmt: skip
    reach(client, prod, "desk", "running")
    browser = Browser(users.dave.berth("open", "desk", "--print").strip())
    until(lambda: browser.get("/").text == "desk\n")
    users.dave.berth("cancel", "desk")
    reach(client, prod, "desk", "cancelled")


def test_service_runs_its_engines_and_scales_out(prod: Prod, users: Users) -> None:
    client = users.dave.client()
    script = """
    mkdir -p www-$BERTH_PORT/v1; cd www-$BERTH_PORT; echo ok > health
    echo '{"data": [{"id": "m"}]}' > v1/models; exec httpd -f -p "$BERTH_HOST:$BERTH_PORT"
    """
    submit(
        users.dave, prod, "chat", script, kind="service", role={"replicas": 1}, service={"engine": "openai"},
        grace_period_seconds=1,
    )  # fmt: skip

    def active() -> int:
        return [engine.status for engine in client.services.engines("chat")].count("ACTIVE")

    until(lambda: active() == 1, details=lambda: client.services.engines("chat"))
    users.dave.berth("service", "scale-out", "chat", "2")
    until(lambda: active() == 2, details=lambda: client.services.engines("chat"))
    users.dave.berth("cancel", "chat")
    reach(client, prod, "chat", "cancelled")


def test_workload_that_kubernetes_cannot_run_fails_with_the_reason(prod: Prod, users: Users) -> None:
    client = users.dave.client()
    submit(users.dave, prod, "half", "true", role={"replicas": 1, "gpu": 0.5})
    until(lambda: "assign only whole GPUs" in users.dave.berth("why", "half"))
    users.dave.berth("cancel", "half")
    with pytest.raises(Invalid, match="only runs workloads with a container image"):
        client.workloads.submit({
            "name": "bare", "project": "vision", "pools": ["prod"], "command": "true", "roles": [{"gpu": 1}],
        })  # fmt: skip
    with (
        pytest.raises(Invalid, match="only runs workloads with a container image"),
        client.session("prod", nodes=1, gpus=1, project="vision"),
    ):
        pass
