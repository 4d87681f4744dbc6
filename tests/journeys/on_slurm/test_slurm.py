"""Test the first chapter of the admin guide on a real Slurm cluster. At the end, the Slurm queue is empty
again.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contracts.slurm.cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.contracts.slurm.rest import SlurmRestServer, allow_tokens, missing_rest
from tests.journeys.command import Terminal, sign_in
from tests.journeys.first_chapter import LONG, FirstChapter
from tests.journeys.guide import run_as_written
from tests.journeys.installation import InstallContext, until
from tests.journeys.on_slurm.slurm_pool import installation_settings, provider_settings
from tests.support.ports import free_port

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600)]

# The nodes of the cluster have two GPUs. Its machines are this machine.
SMALLER = {
    "metal": "hpc", "--gpu 4": "--gpu 2", "--gpu 8": "--gpu 4", "--gpus-per-node 4": "--gpus-per-node 2",
    "--cpu 32 --memory 256Gi": "--cpu 2 --memory 2Gi",
}  # fmt: skip
FAST = ("reconcile_tick=1", "autoscale_cooldown=0", "autoscale_idle_timeout=5", "boot_timeout=600")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if missing := missing_programs():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    with slurm_cluster(allow_tokens) as cluster:
        yield cluster


@pytest.fixture(params=["programs", "slurmrestd"])
def server(request: pytest.FixtureRequest, slurm: SlurmCluster) -> SlurmRestServer | None:
    """Return the slurmrestd of the pool, or None if the pool uses Slurm's programs."""
    if request.param == "programs":
        return None
    if missing := missing_rest():
        pytest.skip(f"needs {', '.join(missing)}: run `make slurm` as root")
    server = SlurmRestServer(slurm)
    server.start()
    return server


@pytest.fixture
def admin(
    installing_empty: InstallContext, slurm: SlurmCluster, server: SlurmRestServer | None, tmp_path: Path
) -> Iterator[Terminal]:
    """Sign in to an empty installation, which finds Slurm's programs only if the pool uses them."""
    port = free_port()
    settings = installation_settings(slurm, port)
    if server is not None:
        settings = {name: value for name, value in settings.items() if name not in slurm.env}
    with installing_empty(port, **settings) as berth:
        yield sign_in(berth, "admin", tmp_path / "admin")


def test_gang_on_slurm_resumes_after_a_reclaim_and_leaves_no_slurm_jobs(
    admin: Terminal, slurm: SlurmCluster, server: SlurmRestServer | None, tmp_path: Path
) -> None:
    def describe() -> str:
        client = admin.client()
        lines = [f"{node.name} {node.state} {node.not_ready_reason}" for node in client.nodes.list()]
        lines += [f"{event.kind} {event.node} {event.reason}" for event in client.node_pools.history("hpc")]
        lines += [path.read_text(errors="replace")[-1500:] for path in (slurm.root / "shared/logs").glob("*")]
        return "\n".join([*lines, slurm.run("squeue", "--states=all")])

    chapter = FirstChapter(
        admin, tmp_path, slurm.root / "shared/workspaces", SMALLER,
        "--cpu 0.1 --memory 64 --grace 5s --preemption-signal USR1@2s", describe,
    )  # fmt: skip
    create_pool(chapter, slurm, server)
    assert slurm.queue() == []
    chapter.create_projects()

    # The pool grows by two jobs.
    chapter.submit_training()
    assert sorted(name.split(".")[1:4] for name in slurm.queue()) == [
        ["journey", "hpc", "0"],
        ["journey", "hpc", "1"],
    ]
    assert "GPUs 0,1" in chapter.log(1)
    capacities = [node.capacity for node in admin.client().nodes.list(pool="hpc")]
    assert {(each.gpu, each.cpu, each.memory_mib) for each in capacities} == {(2, 2, 2048)}

    step = chapter.submit_ranking()
    assert "notice at" in chapter.log(1)
    chapter.resume_training(step)
    chapter.finish("training")

    # The idle pool releases its allocations, and the jobs leave nothing behind.
    until(lambda: slurm.queue() == [], LONG, describe)
    assert list((slurm.root / "shared").glob("pilots/*")) == []
    until(lambda: list(admin.client().nodes.list(pool="hpc")) == [], LONG, describe)
    until(lambda: slurm.leftovers() == [], LONG, slurm.leftovers)


def create_pool(chapter: FirstChapter, slurm: SlurmCluster, server: SlurmRestServer | None) -> None:
    """Create the pool after a mistake and a preview."""
    settings = yaml.safe_load(provider_settings(slurm))
    options = [*FAST, *(f"provider_settings.{key}={settings[key]}" for key in ("directory", "setup"))]
    access: list[str] = []
    if server is not None:
        options += [f"provider_settings.rest_url={server.url}", f"provider_settings.rest_user={server.user}"]
        (chapter.place / "token").write_text(server.token(seconds=36_000))
        access = ["--slurm-token", str(chapter.place / "token")]
    arguments = [*(part for value in options for part in ("--set", value)), *access]
    command = chapter.pool_command("slurm", *arguments)
    mistaken = command.replace("partition=gpu", "partition=gpuu")
    script = f"! {mistaken} > rejection 2>&1 && cat rejection"
    assert "Did you mean `gpu`?" in run_as_written(chapter.admin, script, chapter.place)
    assert "4 of 4 nodes can be used: 8 GPUs" in run_as_written(
        chapter.admin, f"{command} --dry-run", chapter.place
    )
    run_as_written(chapter.admin, command, chapter.place)
