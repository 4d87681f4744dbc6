"""Here we show that the older system's manifest is taken as it stands."""

from typing import Any

import pytest
import yaml

from berth.core.spec import SpecError, parse_workload

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


def manifest(**spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(MANIFEST)
    document["spec"].update(spec)
    return document


@pytest.mark.shows("PAD-03", "PAD-04", "PAD-06", "PAD-08", "PAD-31")
def test_the_trainer_becomes_an_elastic_role() -> None:
    spec = parse_workload(manifest())
    trainer = spec.all_roles[0]
    assert (spec.name, spec.kind, spec.working_dir) == ("words", "elastic", "/srv/words")
    assert (trainer.name, trainer.min, trainer.max, trainer.gpu) == ("trainer", 2, 5, 1)
    assert (trainer.cpu, trainer.memory_mib) == (0.25, 700)
    assert (trainer.limit.cpu, trainer.limit.memory_mib) == (0.9, 2048)
    assert spec.argv_of(trainer) == ("/bin/sh", "-c", "python words.py")


@pytest.mark.shows("PAD-05", "PAD-09")
def test_parameter_servers_stay_at_their_minimum() -> None:
    pserver = parse_workload(manifest()).all_roles[1]
    assert (pserver.name, pserver.min, pserver.max, pserver.gpu) == ("pserver", 2, 2, 0)
    assert (pserver.cpu, pserver.memory_mib) == (1, 1024)


@pytest.mark.shows("PAD-07")
def test_a_master_is_there_only_when_described() -> None:
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
        ({"resources": {"limits": {"cpu": "lots"}}}, "roles[0].cpu"),
    ],
)
def test_a_broken_manifest_is_refused_with_the_path(trainer: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_workload(manifest(trainer=trainer))
    assert path in [problem.path for problem in refused.value.problems]


def test_a_manifest_needs_a_trainer() -> None:
    with pytest.raises(SpecError, match=r"spec\.trainer: missing"):
        parse_workload({"kind": "TrainingJob", "metadata": {"name": "x"}, "spec": {}})
