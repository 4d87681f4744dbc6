"""Tests that volumes of pools restrict their users and the placement of workloads."""

from typing import Any

import pytest

from berth.core.errors import Forbidden, Invalid
from pools.engine.volumes import normalize_volumes
from pools.models import NodePool
from pools.runtimes.base import VolumeMount
from pools.services import edit_pool
from projects.models import Phase, Workload
from projects.queries.volumes import project_volumes, visible_volumes
from projects.services.tenants import create_project, delete_project
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import observe
from scheduler.simulator.scenario.export import snapshot_to_scenario
from scheduler.simulator.scenario.load import load
from tests import factories as make
from tests.scheduler.stage import Stage

GPU = [{"name": "worker", "replicas": 2, "gpu": 1}]
VOLUMES: list[dict[str, Any]] = [
    {"name": "datasets", "source": "/mnt/datasets", "nodes": {"storage": "nfs"}},
    {"name": "scratch", "source": "/mnt/scratch", "access": "read_write", "projects": ["vision"]},
    {"name": "archive", "source": "/mnt/archive", "nodes": {"storage": "tape"}},
]
DATASETS = {"name": "datasets", "path": "/data"}


@pytest.fixture
def volumes(stage: Stage) -> Stage:
    """Create volumes in the pool. Only one of its two nodes has the datasets."""
    stage.cast.pool.nodes.filter(name="local-0").update(labels={"storage": "nfs"})
    define(stage, stage.cast.pool, VOLUMES)
    return stage


def define(stage: Stage, pool: NodePool, values: list[dict[str, Any]]) -> None:
    pool.refresh_from_db()
    edit_pool(actor=stage.cast.alice, pool=pool, changes={"volumes": values})


def problems(stage: Stage, *mounts: dict[str, Any], **changes: Any) -> list[str]:
    with pytest.raises(Invalid) as rejected:
        stage.submit("refused", volumes=[*mounts], **changes)
    return [str(problem) for problem in rejected.value.problems]


def test_department_admin_cannot_recreate_a_deleted_project_with_volume_access(stage: Stage) -> None:
    research = stage.cast.vision.department
    retired = create_project(actor=stage.cast.alice, department=research, name="retired")
    define(stage, stage.cast.pool, [{**VOLUMES[1], "projects": ["vision", "retired"]}])
    delete_project(actor=stage.cast.alice, project=retired)
    with pytest.raises(Forbidden, match="A pool's volume is open to any project named retired"):
        create_project(actor=stage.cast.bob, department=research, name="retired")
    create_project(actor=stage.cast.bob, department=research, name="fresh")
    create_project(actor=stage.cast.alice, department=research, name="retired")


def test_workload_runs_only_in_pools_that_have_its_volumes(volumes: Stage) -> None:
    first = volumes.submit("first", volumes=[DATASETS, {"name": "scratch", "path": "/scratch"}], roles=GPU)
    second = volumes.submit("second", volumes=[DATASETS], roles=GPU)
    free = volumes.submit("free", roles=GPU)
    volumes.tick(2)
    assert {pod.node.name for pod in volumes.pods(first)} == {"local-0"}
    assert {pod.node.name for pod in volumes.pods(free)} == {"local-1"}
    assert volumes.phase(second) == Phase.PENDING
    (pod, _) = volumes.pods(first)
    assert volumes.runtime.order(str(pod.pk)).volumes == (
        VolumeMount("datasets", "/mnt/datasets", "/data"),
        VolumeMount("scratch", "/mnt/scratch", "/scratch", is_writable=True),
    )

    volumes.cast.pool.nodes.update(labels={})
    volumes.tick()
    second.refresh_from_db()
    (blocker, *_) = (second.explanation or {})["blockers"]
    assert "2 nodes lack volume datasets" in blocker["message"]
    assert blocker["numbers"]["by_volume"] == 2

    snapshot = observe(volumes.clock.now(), SpecCache()).snapshot
    exported = load(snapshot_to_scenario(snapshot)).snapshot
    lacking = [set(node.missing_features) for node in exported.nodes]
    assert lacking == [{"volume:archive", "volume:datasets"}] * 2
    assert [work.tree.children for work in exported.workloads] == [
        work.tree.children for work in snapshot.workloads
    ]

    define(volumes, volumes.cast.pool, [{**VOLUMES[0], "projects": ["ads"]}])
    volumes.tick()
    assert (volumes.phase(second), second.reason) == (Phase.PENDING, "Misconfigured")
    assert "pool local has no volume datasets for project vision" in second.message


def test_invalid_volume_error_states_the_cause_and_suggests_a_name(volumes: Stage) -> None:
    cast = volumes.cast
    (unknown,) = problems(volumes, {"name": "dataset", "path": "/data"})
    assert unknown.startswith(
        "volumes[0].name: is not a volume of project vision in these pools; received 'dataset'"
    )
    assert "Did you mean `datasets`?" in unknown
    (foreign,) = problems(volumes, {"name": "scratch", "path": "/data"}, project=cast.ads)
    assert "is not a volume of project ads" in foreign
    assert "scratch" not in foreign.partition("allowed")[2]
    (writable,) = problems(volumes, {**DATASETS, "read_only": False})
    assert "volumes[0].read_only: is not allowed: the volume is read-only in pool local" in writable
    (nowhere,) = problems(volumes, {"name": "archive", "path": "/data"})
    assert "volumes[0].name: is on no node: 0 of 2 nodes of pool local have it" in nowhere

    cloud = make.pool("cloud")
    (pool,) = problems(volumes, DATASETS, pools=["local", "cloud"])
    assert "pools[1]: has no volume datasets for this project; received 'cloud'" in pool
    assert volumes.submit("anywhere", volumes=[DATASETS]).pools == ["local"]
    define(volumes, cloud, [{"name": "backup", "source": "/mnt/backup"}])
    (apart,) = problems(volumes, DATASETS, {"name": "backup", "path": "/backup"})
    assert "is in none of the pools that have the other volumes" in apart


def test_users_see_only_volumes_that_their_projects_may_use(volumes: Stage) -> None:
    cast = volumes.cast
    counts = {each.name: (each.nodes, each.pool_nodes) for each in project_volumes(cast.vision)}
    assert counts == {"archive": (0, 2), "datasets": (1, 2), "scratch": (2, 2)}
    assert [each.name for each in project_volumes(cast.ads)] == ["archive", "datasets"]
    cast.pool.refresh_from_db()
    of_dave = {volume.name: volume for volume, _ in visible_volumes(cast.dave, cast.pool)}
    assert (of_dave["scratch"].source, of_dave["scratch"].projects) == ("", ("vision",))
    assert "scratch" not in {volume.name for volume, _ in visible_volumes(cast.grace, cast.pool)}
    assert visible_volumes(cast.frank, cast.pool) == []
    assert visible_volumes(cast.alice, cast.pool)[1][0].source == "/mnt/scratch"


@pytest.mark.parametrize(
    ("mount", "problem"),
    [
        ({"path": "data"}, "volumes[0].path: is not a normalized absolute path; received 'data'"),
        ({"path": "/data/../etc"}, "volumes[0].path: leaves its directory"),
        ({"path": "/data/"}, "volumes[0].path: is not a normalized absolute path"),
        ({"path": "/etc/ssl"}, "volumes[0].path: is used by the pod's own files"),
        ({"path": "/tmp"}, "volumes[0].path: is used by the pod's own files"),
        ({"path": "/"}, "volumes[0].path: is not a normalized absolute path"),
        ({"path": "/data", "readonly": True}, "volumes[0].readonly: unknown key"),
    ],
)
def test_invalid_mount_is_rejected(volumes: Stage, mount: dict[str, Any], problem: str) -> None:
    assert problems(volumes, {"name": "datasets", **mount})[0].startswith(problem)


def test_overlapping_mounts_are_rejected(volumes: Stage) -> None:
    (problem,) = problems(volumes, DATASETS, {"name": "scratch", "path": "/data/scratch"})
    assert problem.startswith("volumes: overlap at /data and /data/scratch")
    assert not Workload.objects.exists()


@pytest.mark.parametrize(
    ("volume", "problem"),
    [
        ({"source": "mnt"}, "volumes[0].source: is not a normalized absolute path; received 'mnt'"),
        ({"source": "/mnt/../etc"}, "volumes[0].source: leaves its directory"),
        ({"source": "/etc"}, "volumes[0].source: is a system directory"),
        ({"source": "nfs://server/data"}, "volumes[0].source: is supported only on Kubernetes"),
        ({"source": None}, "volumes[0].source: is missing"),
        ({"acces": "read_only"}, "volumes[0].acces: unknown key; received 'acces'. Did you mean `access`?"),
        ({"access": "read_writ"}, "volumes[0].access: is unknown; received 'read_writ'. Did you mean"),
        ({"nodes": {"storage": 1}}, "volumes[0].nodes: is not a mapping of labels"),
        ({"projects": "vision"}, "volumes[0].projects: is not a list of projects"),
        ({"name": "Data"}, "volumes[0].name: is not a valid name"),
    ],
)
def test_invalid_pool_volume_is_rejected(volume: dict[str, Any], problem: str) -> None:
    with pytest.raises(Invalid) as rejected:
        normalize_volumes([{"name": "data", "source": "/mnt/data", **volume}], is_kubernetes=False)
    assert str(rejected.value.problems[0]).startswith(problem)


def test_volume_names_in_a_pool_are_unique_and_nfs_volumes_require_kubernetes() -> None:
    nfs = {"name": "data", "source": "nfs://nfs.example.org/data"}
    (stored,) = normalize_volumes([nfs], is_kubernetes=True)
    assert (stored["source"], stored["access"], stored["projects"]) == (nfs["source"], "read_only", [])
    with pytest.raises(Invalid) as rejected:
        normalize_volumes([nfs, nfs], is_kubernetes=True)
    assert str(rejected.value.problems[0]) == "volumes[1].name: is used twice; received 'data'"
