"""Test the first chapter of the admin guide on a real Kubernetes cluster."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contracts.kubernetes.cluster import GPU, patch
from tests.images.registry import PASSWORD, USER, Registry
from tests.journeys.command import Terminal, sign_in
from tests.journeys.first_chapter import FirstChapter
from tests.journeys.guide import run_as_written
from tests.journeys.installation import InstallContext, until
from tests.journeys.on_kubernetes.prod import Prod

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
# The cluster of the test has five free GPUs on two nodes, and little memory.
SMALLER = {
    "metal": "prod", "--gpu 4": "--gpu 2", "--gpu 8": "--gpu 4", "--gpus-per-node 4": "--gpus-per-node 3",
    "--cpu 32 --memory 256Gi": "--cpu 1 --memory 1Gi",
}  # fmt: skip


@pytest.fixture
def admin(installing_empty: InstallContext, tmp_path: Path) -> Iterator[Terminal]:
    with installing_empty() as berth:
        yield sign_in(berth, "admin", tmp_path / "admin")


@pytest.fixture
def kubeconfig(prod: Prod, tmp_path: Path) -> Path:
    """Return a kubeconfig with the guide's context. The cluster's nodes have the guide's label."""
    for node in ("node-1", "node-2"):
        change = {"op": "add", "path": "/metadata/labels/gpus", "value": "yes"}
        patch(prod.admin, f"/api/v1/nodes/{node}", change)
    config = yaml.safe_load(prod.config.read_text())
    config["contexts"][0]["name"] = "prod"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config | {"current-context": ""}))
    return file


def test_gang_on_a_new_installation_is_reclaimed_and_resumes(
    admin: Terminal, prod: Prod, registry: Registry, kubeconfig: Path, tmp_path: Path
) -> None:
    chapter = FirstChapter(
        admin, tmp_path, prod.workspaces, SMALLER, "--cpu 0.1 --memory 32 --grace 20s",
        lambda: str(prod.objects("pods")), image=prod.image,
    )  # fmt: skip
    settings = f"{{gpu_resource: {GPU}, workspaces: {{host_path: {prod.workspaces}}}}}"
    values = (f"provider_settings={settings}", "reconcile_tick=1")
    create = chapter.pool_command("kubernetes", *(part for value in values for part in ("--set", value)))

    def run(command: str) -> str:
        return run_as_written(admin, command, tmp_path, KUBECONFIG=str(kubeconfig))

    # The preview shows both nodes, the foreign pod and no error: the shipped role is enough.
    preview = run(f"{create} --dry-run")
    assert re.search(r"node-1 +3 +3 ", preview), preview
    assert re.search(r"node-2 +3 +2 .*1 pod of others", preview), preview
    assert "2 of 2 nodes can be used: 6 GPUs, 5 of them free." in preview
    assert "error:" not in preview
    run(create)
    chapter.create_projects()
    for project in ("genomics", "shop"):
        login = ("--registry", registry.address, "-u", USER)
        admin.berth("secret", "set", "registry", "-p", project, *login, stdin=PASSWORD)
    chapter.submit_training()
    step = chapter.submit_ranking()
    chapter.resume_training(step)
    chapter.finish("training")

    # Nothing is left in the cluster but the namespaces, and what others run there.
    until(lambda: prod.objects("pods") == [])
    until(lambda: not [each for each in prod.objects("secrets") if "service-account" not in each["type"]])
    foreign = prod.api.get("/api/v1/namespaces/default/pods/theirs")
    assert foreign["status"]["phase"] == "Running"
