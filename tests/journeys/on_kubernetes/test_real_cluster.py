"""Test the path from a real Kubernetes cluster to a reclaimed gang that resumes."""

import json
import re
from typing import Any

import pytest

from berth.client import Client
from berth.client.errors import Invalid
from tests.images.registry import Registry
from tests.journeys.command import Terminal
from tests.journeys.installation import Installation, until
from tests.journeys.on_kubernetes.prod import Prod, Users, create_pool, sign_in_users
from tests.journeys.test_ports import Browser

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]

# Each worker counts steps, saves the count when it is stopped, and continues from it.
TRAIN = """
step=$(cat step-$RANK 2>/dev/null || echo 0)
echo "starts at $step with $WORLD_SIZE workers, first $MASTER_ADDR"
trap 'echo $step > step-$RANK; echo "saved $step"; exit 0' TERM
while [ ! -e finish ]; do step=$((step + 1)); sleep 0.1; done
echo "ends at $step"
"""


@pytest.fixture(scope="module")
def users(
    berth: Installation, prod: Prod, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Users:
    return sign_in_users(berth, registry, tmp_path_factory.mktemp("users"))


@pytest.fixture(scope="module")
def preview(prod: Prod, users: Users) -> str:
    """Create the pool. Return the preview that the admin saw before."""
    return create_pool(users.admin, prod)


@pytest.fixture(scope="module", autouse=True)
def _pool(preview: str) -> None:
    """Create the pool before the first test."""


def submit(
    terminal: Terminal, prod: Prod, name: str, script: str = TRAIN, *, project: str = "vision",
    exits: int = 0, role: dict[str, Any] | None = None, **fields: Any,
) -> None:  # fmt: skip
    """Submit a workload whose pods run a shell script. By default, it is a training gang of two pods."""
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
    """Wait until the workload is in this phase."""
    until(
        lambda: phase(client, name) == wanted,
        details=lambda: (client.workloads.find(name).message, prod.objects("pods")),
    )


def test_gang_is_reclaimed_with_a_grace_period_and_resumes_from_its_checkpoint(
    prod: Prod, users: Users, preview: str
) -> None:
    dave = users.dave
    vision, ads = dave.client(), users.grace.client()

    # The preview shows both nodes, the foreign pod and no error: the shipped role is enough.
    assert re.search(r"node-1 +3 +3 ", preview), preview
    assert re.search(r"node-2 +3 +2 .*1 pod of others", preview), preview
    assert "2 of 2 nodes can be used: 6 GPUs, 5 of them free." in preview
    assert "error:" not in preview

    # vision has a quota of two GPUs and borrows two of the others' three.
    for name in ("older", "younger"):
        submit(dave, prod, name)
        reach(vision, prod, name, "running")
    first = vision.workloads.find("younger").id
    until(lambda: b"starts at 0 with 2 workers" in vision.workloads.log(first).data)

    # The owner of the quota takes it back. Both workers save their state within the grace period.
    submit(users.grace, prod, "ranking", project="ads")
    reach(ads, prod, "ranking", "running")
    assert phase(vision, "younger") == "pending"
    assert vision.workloads.find("younger").preemptions == 1
    saved = dave.berth("logs", "younger", "--run", "1")
    step = int(re.search(r"saved (\d+)", saved).group(1))  # type: ignore[union-attr]
    assert step > 0

    # Once the owner has finished, the gang continues where it stopped, and ends.
    (prod.workspaces / workspace(prod, "ranking") / "finish").touch()
    reach(ads, prod, "ranking", "completed")
    reach(vision, prod, "younger", "running")
    until(lambda: f"starts at {step} with 2 workers" in dave.berth("logs", "younger"))
    for name in ("younger", "older"):
        (prod.workspaces / workspace(prod, name) / "finish").touch()
        reach(vision, prod, name, "completed")
    assert re.search(r"ends at \d+", dave.berth("logs", "younger"))

    # Nothing is left in the cluster but the namespaces, and what others run there.
    until(lambda: prod.objects("pods") == [])
    until(lambda: not [s for s in prod.objects("secrets") if "service-account" not in s["type"]])
    foreign = prod.api.get("/api/v1/namespaces/default/pods/theirs")
    assert foreign["status"]["phase"] == "Running"


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
    submit(users.dave, prod, "half", role={"replicas": 1, "gpu": 0.5})
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


def workspace(prod: Prod, name: str) -> str:
    """Return the directory of the workload's workspace."""
    names = {
        pod["metadata"]["annotations"]["berth.dev/name"]: pod["metadata"]["labels"]["berth.dev/workload"]
        for pod in prod.objects("pods")
    }
    return str(names[f"{name}-worker-0"])
