"""Tests that TrainingJob manifests are accepted unchanged."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml

from berth.core.spec import SpecError, parse_workload
from scheduler.engine.decide import decide
from scheduler.engine.from_spec import workload_from_spec
from scheduler.simulator import load
from scheduler.simulator.simulation import SimulatedCluster

MANIFEST = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: words}
spec:
  trainer:
    entrypoint: python words.py
    workspace: /srv/words
    min-instance: 2
    max-instance: 5
    resources:
      limits: {alpha.kubernetes.io/nvidia-gpu: 1, cpu: 900m, memory: 2Gi}
      requests: {cpu: 250m, memory: 700Mi}
  pserver:
    min-instance: 2
    max-instance: 4
    resources: {requests: {cpu: 1, memory: 1073741824}}
"""


CLUSTER = """
format: berth.scenario/1
nodes: [{name: n, gpus: 4, cpu: 16, memory_mib: 65536}]
departments: [{name: d, quotas: {default: {gpu: 4}}}]
projects:
  - {name: p, department: d, quotas: {default: {gpu: 4}}}
  - {name: q, department: d, quotas: {default: {gpu: 0}}}
workloads:
  - {name: other, project: q, roles: [{min: 1, max: 3, gpu: 1}], pods: [{node: n}, {node: n}, {node: n}]}
"""


def manifest(**spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(MANIFEST)
    document["spec"].update(spec)
    return document


@pytest.mark.shows("PAD-03", "PAD-04", "PAD-06", "PAD-08", "PAD-31")
def test_trainer_becomes_an_elastic_role() -> None:
    spec = parse_workload(manifest())
    trainer = spec.all_roles[0]
    assert (spec.name, spec.kind, spec.workspace) == ("words", "elastic", "/srv/words")
    assert (trainer.name, trainer.min, trainer.max, trainer.gpu) == ("trainer", 2, 5, 1)
    assert (trainer.cpu, trainer.memory_mib) == (0.25, 700)
    assert (trainer.limit.cpu, trainer.limit.memory_mib) == (0.9, 2048)
    assert spec.role_argv(trainer) == ("/bin/sh", "-c", "python words.py")


@pytest.mark.shows("PAD-05", "PAD-09")
def test_parameter_servers_are_not_elastic() -> None:
    pserver = parse_workload(manifest()).all_roles[1]
    assert (pserver.name, pserver.min, pserver.max, pserver.gpu) == ("pserver", 2, 2, 0)
    assert (pserver.cpu, pserver.memory_mib) == (1, 1024)


@pytest.mark.shows("PAD-01", "PAD-02", "PAD-10", "PAD-20")
def test_manifest_gang_is_scheduled_like_any_other_gang() -> None:
    snapshot = load(yaml.safe_load(CLUSTER)).snapshot
    submitted = workload_from_spec(parse_workload(manifest()))
    words = replace(submitted, project="p", pools=("default",), submitted=snapshot.now)
    world = SimulatedCluster(replace(snapshot, workloads=(*snapshot.workloads, words)))
    for _ in range(2):
        world.apply_plan(decide(world.snapshot()))
        world.advance(1)
    counts = Counter((w.name, pod.role) for w in world.snapshot().workloads for pod in w.pods)
    assert counts == {("words", "trainer"): 3, ("words", "pserver"): 2, ("other", "worker"): 1}


@pytest.mark.shows("PAD-07")
def test_master_role_exists_only_when_declared() -> None:
    assert [role.name for role in parse_workload(manifest()).all_roles] == ["trainer", "pserver"]
    with_master = parse_workload(manifest(master={"resources": {"requests": {"cpu": "100m"}}}))
    assert with_master.all_roles[2].name == "master"
    assert (with_master.all_roles[2].minimum, with_master.all_roles[2].maximum) == (1, 1)


@pytest.mark.parametrize(
    ("trainer", "path"),
    [
        ({"min-instance": 3, "max-instance": 2}, "spec.trainer.min-instance"),
        ({"min-instances": 3}, "spec.trainer.min-instances"),
        ({"min-instance": True}, "spec.trainer.min-instance"),
        ({"resources": 3}, "spec.trainer.resources"),
        ({"resources": {"limits": {"gpu": 1}}}, "spec.trainer.resources.limits.gpu"),
        ({"resources": {"limits": {"cpu": "lots"}}}, "spec.trainer.resources.limits.cpu"),
        ({"resources": {"requests": {"memory": "much"}}}, "spec.trainer.resources.requests.memory"),
        ({"resources": {"limits": {"nvidia.com/gpu": 1.5}}}, "spec.trainer.resources.limits.nvidia.com/gpu"),
        (
            {"resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 2}}},
            "spec.trainer.resources.requests",
        ),
        ({"workspace": "/srv/../etc"}, "spec.trainer.workspace"),
        ({"entrypoint": None}, "spec.trainer.entrypoint"),
    ],
)
def test_error_for_an_invalid_manifest_names_the_path(trainer: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecError) as rejected:
        parse_workload(manifest(trainer={"entrypoint": "true"} | trainer))
    assert path in [problem.path for problem in rejected.value.problems]


@pytest.mark.shows("PAD-04")
def test_role_without_an_entrypoint_is_idle() -> None:
    trainer, pserver = parse_workload(manifest()).all_roles
    assert (trainer.idle, pserver.idle) == (False, True)
    served = parse_workload(manifest(pserver={"entrypoint": "python serve.py"})).all_roles[1]
    assert (served.idle, served.command) == (False, "python serve.py")


def test_document_with_only_idle_roles_is_rejected() -> None:
    with pytest.raises(SpecError, match="has only idle roles"):
        parse_workload({"name": "x", "roles": [{"idle": True}]})
    with pytest.raises(SpecError, match="cannot be combined with idle"):
        parse_workload({"name": "x", "roles": [{"idle": True, "command": "true"}, {"name": "b"}]})


def test_manifest_requires_a_trainer() -> None:
    with pytest.raises(SpecError, match=r"spec\.trainer: is missing"):
        parse_workload({"kind": "TrainingJob", "metadata": {"name": "x"}, "spec": {}})
