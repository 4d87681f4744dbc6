"""Test the first chapter of the admin guide on a real cluster, with an installation that has no projects."""

import re
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.kubernetes_cluster import GPU
from tests.images.registry import PASSWORD, USER, Registry
from tests.journeys.command import Terminal, sign_in
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import Installation, until
from tests.journeys.on_kubernetes.prod import Prod
from tests.journeys.on_kubernetes.test_real_cluster import TRAIN

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
# The cluster of the test has five free GPUs on two nodes, and little memory. The guide's has eight.
SMALLER = {"metal": "prod", "--gpu 8": "--gpu 4"}


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Terminal]:
    """Sign in to an installation that was just started for the first time, without the demo organization."""
    with tempfile.TemporaryDirectory(prefix="berth-journey-") as place:
        berth = Installation(Path(place) / "home")
        try:
            berth.start()
            yield sign_in(berth, "admin", tmp_path / "admin")
        finally:
            berth.clear()


def test_empty_installation_runs_a_gang_that_is_reclaimed_and_resumes(
    admin: Terminal, prod: Prod, registry: Registry, tmp_path: Path
) -> None:
    assert admin.json("project", "list") == []
    settings = f"{{gpu_resource: {GPU}, workspaces: {{host_path: {prod.workspaces}}}}}"
    pool = (
        "pool", "create", "prod", "--provider", "kubernetes", "--kubeconfig", str(prod.config),
        "--nodes", "2", "--gpus-per-node", "3",
        "--set", f"provider_settings={settings}", "--set", "reconcile_tick=1",
    )  # fmt: skip
    assert "2 of 2 nodes can be used: 6 GPUs, 5 of them free." in admin.berth(*pool, "--dry-run")
    admin.berth(*pool)
    _, projects, training, ranking = guide_examples("First pool and first reclaimed gang", "admins")
    run_as_written(admin, smaller(projects), tmp_path)
    for project in ("vision", "ads"):
        login = ("--registry", registry.address, "-u", USER)
        admin.berth("secret", "set", "registry", "-p", project, *login, stdin=PASSWORD)

    client = admin.client()

    def reach(name: str, phase: str) -> None:
        until(
            lambda: client.workloads.find(name).phase == phase,
            details=lambda: (client.workloads.find(name).message, prod.objects("pods")),
        )

    # vision has no quota, and borrows the GPUs of ads.
    submit(admin, prod, training, tmp_path)
    reach("training", "running")
    first = client.workloads.find("training").id
    until(lambda: b"starts at 0 with 2 workers" in client.workloads.log(first).data)

    # ads takes them back. The gang saves its state, and is queued again.
    submit(admin, prod, ranking.partition("\n")[0], tmp_path)
    reach("ranking", "running")
    assert "ranking" in run_as_written(admin, smaller(ranking.partition("\n")[2]), tmp_path)
    saved = re.search(r"saved (\d+)", admin.berth("logs", "training", "--run", "1"))
    assert saved, "the workers have saved their state within the grace period"

    # It continues from there once ads has finished.
    end(prod, client.workloads.find("ranking").id)
    reach("ranking", "completed")
    reach("training", "running")
    until(lambda: f"starts at {saved[1]} with 2 workers" in admin.berth("logs", "training"))
    end(prod, first)
    reach("training", "completed")
    until(lambda: prod.objects("pods") == [])


def smaller(example: str) -> str:
    example = textwrap.dedent(example)
    for text, replacement in SMALLER.items():
        example = example.replace(text, replacement)
    return example


def submit(admin: Terminal, prod: Prod, example: str, place: Path) -> None:
    """Submit the gang of an example with an image instead of code, with half the GPUs and little else."""
    script = place / "script.sh"
    script.write_text(TRAIN)
    line = smaller(example).strip().replace("--gpu 4", "--gpu 2 --cpu 0.1 --memory 32 --grace 20s")
    line, _, _ = line.replace("--code .", f"--image {prod.image}").partition(" -- ")
    run_as_written(admin, f'{line} -- sh -c "$(cat {script})"', place)


def end(prod: Prod, workload: str) -> None:
    """Let the workload's program end."""
    (prod.workspaces / workload / "finish").touch()
