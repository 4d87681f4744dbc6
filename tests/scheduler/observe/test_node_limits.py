"""Tests for nodes that cannot run images, cannot isolate pods, or serve only one project."""

from typing import Any

import pytest

from pools.models import Node, NodePool
from projects.models import Phase, Project, Workload
from projects.services.workloads import control
from projects.services.workloads.prediction import dry_run
from scheduler.engine.decide import decide
from scheduler.loop.commit import commit
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import observe
from scheduler.models import Cycle
from scheduler.simulator.scenario.export import snapshot_to_scenario
from scheduler.simulator.scenario.load import load
from tests import factories as make
from tests.cast import training
from tests.scheduler.stage import Stage
from tests.support.present import present

pytestmark = pytest.mark.usefixtures("runs_images")

IMAGE = "ghcr.io/org/train:1"
NO_PODMAN = "podman is not installed. Install it, for example with `apt-get install podman`."
NO_BUBBLEWRAP = "bubblewrap is not installed. Install it, for example with `apt-get install bubblewrap`."


def report(*nodes: str, **changes: Any) -> None:
    isolation = {
        "level": "users", "policy": "auto", "obstacle": "", "images": "4.3.1", "images_obstacle": "",
        **changes,
    }  # fmt: skip
    Node.objects.filter(name__in=nodes).update(isolation=isolation)


def node_names(stage: Stage, workload: Workload) -> set[str]:
    return {pod.node.name for pod in stage.pods(workload)}


@pytest.fixture
def speech(stage: Stage) -> Project:
    stage.quota(stage.cast.speech, 4)
    return stage.cast.speech


def test_workload_with_an_image_runs_on_a_node_that_supports_images(stage: Stage) -> None:
    report("local-0", images="", images_obstacle=NO_PODMAN)
    report("local-1")
    workload = stage.submit(image=IMAGE, roles=[{"name": "w", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    assert node_names(stage, workload) == {"local-1"}


@pytest.mark.heavy
def test_blocker_states_why_no_node_supports_images(stage: Stage) -> None:
    report("local-0", "local-1", images="", images_obstacle=NO_PODMAN)
    workload, plain = stage.submit(image=IMAGE), stage.submit("plain")
    stage.tick(2)
    assert (stage.phase(workload), workload.reason) == (Phase.PENDING, "Unschedulable")
    assert "2 nodes cannot run images (podman is not installed)" in workload.message
    assert stage.phase(plain) != Phase.PENDING


@pytest.mark.heavy
def test_nodes_that_have_not_reported_are_assumed_to_support_images(stage: Stage) -> None:
    report("local-0", images="", images_obstacle=NO_PODMAN)
    workload = stage.submit(image=IMAGE)
    stage.tick(2)
    assert node_names(stage, workload) == {"local-1"}


@pytest.mark.heavy
def test_new_nodes_are_assumed_to_lack_features_missing_on_all_existing_nodes(stage: Stage) -> None:
    report("local-0", images="", images_obstacle=NO_PODMAN)
    missing = {
        node.name: dict(node.missing_features)
        for node in observe(stage.clock.now(), SpecCache()).snapshot.nodes
    }
    assert missing == {"local-0": {"images": "podman is not installed"}, "local-1": {}}
    shapes = [pool.node_shape for pool in observe(stage.clock.now(), SpecCache()).snapshot.pools]
    assert [dict(shape.missing_features) for shape in shapes if shape] == [
        {"images": "podman is not installed"}
    ]
    report("local-1")
    shapes = [pool.node_shape for pool in observe(stage.clock.now(), SpecCache()).snapshot.pools]
    assert [dict(shape.missing_features) for shape in shapes if shape] == [{}]


def test_node_that_cannot_provide_required_isolation_runs_no_pods(stage: Stage) -> None:
    report("local-0", "local-1", level="none", policy="require", obstacle=NO_BUBBLEWRAP)
    workload = stage.submit()
    stage.tick(2)
    assert (stage.phase(workload), workload.reason) == (Phase.PENDING, "Unschedulable")
    assert "2 nodes cannot isolate pods, but must (bubblewrap is not installed)" in workload.message
    report("local-0", "local-1", level="none", policy="off", obstacle=NO_BUBBLEWRAP)
    stage.tick(2)
    assert stage.phase(workload) != Phase.PENDING


def test_unisolated_node_changes_projects_only_after_its_workspaces_are_deleted(
    stage: Stage, speech: Project
) -> None:
    report("local-0", "local-1", level="none", obstacle=NO_BUBBLEWRAP)
    first = stage.submit("first", roles=[{"name": "w", "replicas": 2, "gpu": 1, "spread_per_node": 1}])
    stage.tick(2)
    second = stage.submit("second", project=speech)
    stage.tick(2)
    assert (stage.phase(second), second.reason) == (Phase.PENDING, "WaitingForScaleUp")
    capacity = present(second.explanation)["blockers"][1]
    assert "2 GPUs free on nodes that cannot isolate pods and serve another project" in capacity["message"]
    stage.finish(first)
    stage.tick(3)
    assert stage.phase(second) == Phase.PENDING, "the workspace of an ended workload is still on the node"
    control.delete(actor=stage.cast.alice, workload=first)
    stage.tick(3)
    assert stage.phase(second) != Phase.PENDING


@pytest.mark.heavy
def test_local_nodes_count_as_one_machine(stage: Stage, speech: Project) -> None:
    other = make.pool("other")
    stage.node(0, pool=other)
    for owner in (stage.cast.research, speech):
        make.quota(owner, other, 4)
    report("local-0", "local-1", "other-0", level="none", obstacle=NO_BUBBLEWRAP)
    stage.submit("first")
    stage.tick(2)
    snapshot = observe(stage.clock.now(), SpecCache()).snapshot
    assert sorted(node.only_project for node in snapshot.nodes) == ["", "", "vision"]
    NodePool.objects.update(runtime="local")
    snapshot = observe(stage.clock.now(), SpecCache()).snapshot
    assert [node.only_project for node in snapshot.nodes] == ["vision"] * 3


def test_plan_does_not_assign_one_node_to_two_projects(stage: Stage, speech: Project) -> None:
    Node.objects.filter(name="local-1").update(state="cordoned")
    report("local-0", level="none", obstacle=NO_BUBBLEWRAP)
    one_gpu = [{"name": "w", "replicas": 1, "gpu": 1}]
    stage.submit("first", roles=one_gpu)
    stage.submit("second", project=speech, roles=one_gpu)
    view = observe(stage.clock.now(), SpecCache())
    plan = decide(view.snapshot)
    assert [bundle.workload for bundle in plan.bundles] == ["vision/first", "speech/second"]
    cycle = Cycle(at=stage.clock.now(), epoch=1, trigger="test")
    outcome = commit(view, plan, stage.loop.context.held_lease, cycle)
    assert [bundle.workload for bundle in outcome.applied] == ["vision/first"]
    assert [reason for _, reason in outcome.stale] == [
        "node local-0 cannot isolate pods and serves another project"
    ]


def test_dry_run_and_exported_scenario_agree_with_the_scheduler(stage: Stage, speech: Project) -> None:
    report("local-0", level="none", obstacle=NO_BUBBLEWRAP, images="", images_obstacle=NO_PODMAN)
    Node.objects.filter(name="local-1").update(state="cordoned")
    stage.submit("first", roles=[{"name": "w", "replicas": 1, "gpu": 1}])
    stage.tick(2)
    one_gpu = [{"name": "w", "replicas": 1, "gpu": 1}]
    documents = [
        training("w", project=project, roles=one_gpu, **image)
        for project, image in (("vision", {}), ("speech", {}), ("vision", {"image": IMAGE}))
    ]
    outcomes = [dry_run(actor=stage.cast.alice, document=document).outcome for document in documents]
    assert outcomes == ["would_start", "would_stay_pending", "would_stay_pending"]
    snapshot = observe(stage.clock.now(), SpecCache()).snapshot
    again = load(snapshot_to_scenario(snapshot)).snapshot
    assert [(node.missing_features, node.only_project) for node in again.nodes] == [
        ({"images": "podman is not installed"}, "vision"), ({}, ""),
    ]  # fmt: skip
