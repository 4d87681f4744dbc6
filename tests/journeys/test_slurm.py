"""Test the first chapter of the admin guide on a real Slurm, and the way back to an empty queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contracts.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster
from tests.journeys.command import Terminal, sign_in
from tests.journeys.first_chapter import LONG, FirstChapter
from tests.journeys.guide import run_as_written
from tests.journeys.installation import InstallContext, free_port, until
from tests.journeys.slurm_pool import installation_settings, provider_settings

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
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def admin(installing_empty: InstallContext, slurm: SlurmCluster, tmp_path: Path) -> Iterator[Terminal]:
    """Sign in to an empty installation on a machine with Slurm's programs."""
    port = free_port()
    with installing_empty(port, **installation_settings(slurm, port)) as berth:
        yield sign_in(berth, "admin", tmp_path / "admin")


def test_gang_on_slurm_is_reclaimed_resumes_and_leaves_no_slurm_jobs(
    admin: Terminal, slurm: SlurmCluster, tmp_path: Path
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
    create_pool(chapter, slurm)
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
    assert list((slurm.root / "shared" / "pilots").iterdir()) == []
    until(lambda: list(admin.client().nodes.list(pool="hpc")) == [], LONG, describe)
    until(lambda: slurm.leftovers() == [], LONG, slurm.leftovers)


def create_pool(chapter: FirstChapter, slurm: SlurmCluster) -> None:
    """Create the pool after a mistake and a preview."""
    settings = yaml.safe_load(provider_settings(slurm))
    options = [*FAST, *(f"provider_settings.{key}={settings[key]}" for key in ("directory", "setup"))]
    command = chapter.pool_command("slurm", *(part for value in options for part in ("--set", value)))
    mistaken = command.replace("partition=gpu", "partition=gpuu")
    script = f"! {mistaken} > refusal 2>&1 && cat refusal"
    assert "Did you mean `gpu`?" in run_as_written(chapter.admin, script, chapter.place)
    assert "4 of 4 nodes can be used: 8 GPUs" in run_as_written(
        chapter.admin, f"{command} --dry-run", chapter.place
    )
    run_as_written(chapter.admin, command, chapter.place)
