"""Tests that outputs of ended pods are stored completely, or that the row states why not."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from berth.core.errors import Invalid
from berth.core.spec.sections.code import CHUNK_BYTES
from berth.db.loops.lease import LeadershipLost
from pools.runtimes.base import RuntimeFailure
from projects.code.collector import prune_code_store
from projects.code.stores import open_store
from projects.models import CodeChunk, CodeTree, Pod, PodOutputs, Workload
from projects.services import code, workloads
from scheduler.leftovers.collector import GIVE_UP
from scheduler.leftovers.outputs import OutputsCollector
from tests.scheduler.stage import Stage
from tests.support.crashes import Killed, listening
from tests.support.present import present

ONE = [{"name": "worker", "replicas": 1}]
BIG = bytes(CHUNK_BYTES) + b"1" * CHUNK_BYTES  # a file with two chunks


@pytest.fixture(autouse=True)
def code_store(settings: Any, tmp_path: Path) -> None:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")


class Producer:
    """A workload with one running pod that leaves files behind."""

    def __init__(self, stage: Stage, **changes: Any) -> None:
        self.stage = stage
        self.workload = stage.submit(roles=ONE, outputs=["results"], **changes)
        stage.tick(2)
        (self.pod,) = stage.pods(self.workload, "running")
        assert stage.runtime.order(str(self.pod.pk)).outputs == ("results",)
        self.leave({"results/a.txt": b"loss 0.5\n", "results/big.bin": BIG, "scratch": b"not declared"})
        self.collector = OutputsCollector(stage.clock, lambda pool: stage.runtime, 3)

    def leave(self, files: dict[str, bytes]) -> None:
        self.stage.runtime.files[str(self.pod.pk)] = files

    def end(self, exit_code: int = 0) -> None:
        self.stage.finish(self.workload, exit_code)
        self.stage.tick(2)

    def collect(self, seconds: float = 3) -> PodOutputs:
        self.stage.clock.advance(seconds)
        assert self.collector.run_once()
        return PodOutputs.objects.select_related("tree").get(pod=self.pod)


@pytest.fixture
def producer(stage: Stage) -> Producer:
    return Producer(stage)


def contents(outputs: PodOutputs) -> dict[str, bytes]:
    tree = present(outputs.tree)
    return {file["path"]: b"".join(code.read_file(tree, file)) for file in tree.files}


@pytest.mark.parametrize("exit_code", [0, 1])
def test_outputs_are_stored_when_the_pod_completes_or_fails(producer: Producer, exit_code: int) -> None:
    assert producer.collect().state == "waiting", "the pod is still running"
    producer.end(exit_code)
    outputs = producer.collect()
    assert (outputs.state, outputs.message) == ("stored", "")
    assert contents(outputs) == {"results/a.txt": b"loss 0.5\n", "results/big.bin": BIG}
    assert present(outputs.tree).size == len(BIG) + 9


def test_outputs_of_an_evicted_pod_are_stored(producer: Producer) -> None:
    workloads.suspend(actor=producer.stage.cast.alice, workload=producer.workload)
    producer.stage.tick(3)
    assert producer.stage.phase(producer.workload) == "suspended"
    assert producer.collect().state == "stored"


def test_outputs_that_are_never_stored_are_deleted_after_a_day(producer: Producer) -> None:
    producer.end()
    for hours, is_kept in ((23, True), (2, False)):
        producer.stage.clock.advance(hours * 3600)
        producer.stage.tick(2)
        assert (str(producer.pod.pk) in producer.stage.runtime.list_pods()) is is_kept


def test_node_keeps_the_files_until_they_are_stored(producer: Producer) -> None:
    producer.end()
    producer.stage.clock.advance(3600)
    producer.stage.loop.swept_at = None
    producer.stage.tick()
    assert str(producer.pod.pk) in producer.stage.runtime.list_pods()
    assert producer.collect().state == "stored"
    producer.stage.clock.advance(3600)
    producer.stage.tick()
    assert producer.stage.runtime.list_pods() == ()


@pytest.mark.parametrize("point", ["outputs.copied", "chunk"])
def test_files_are_copied_again_after_a_crash_during_the_copy(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    producer.end()

    def kill(name: str = "") -> None:
        if name in (point, ""):
            raise Killed

    with monkeypatch.context() as patch, listening(kill), pytest.raises(Killed):
        if point == "chunk":  # after the first file
            patch.setattr(producer.collector, "_renew_lease", lambda held: kill())
        producer.collect()
    assert PodOutputs.objects.get().state == "waiting"
    stored = CodeChunk.objects.count()
    outputs = producer.collect()
    assert contents(outputs)["results/big.bin"] == BIG
    assert CodeChunk.objects.count() >= stored > 0


@pytest.mark.heavy
def test_files_lost_with_their_node_are_reported(producer: Producer) -> None:
    producer.end()
    producer.stage.runtime.lose_all_pods()
    outputs = producer.collect()
    assert (outputs.state, outputs.message) == ("failed", "The pod's files no longer exist.")


@pytest.mark.heavy
def test_output_copy_from_an_unreachable_node_is_retried_until_its_deadline(producer: Producer) -> None:
    producer.end()
    failure = RuntimeFailure("the node does not respond")
    producer.stage.runtime.next("list_files", failure)
    outputs = producer.collect()
    assert (outputs.state, outputs.attempts) == ("waiting", 1)
    assert outputs.message == "The node does not respond. Berth tries again."
    assert producer.collect(1).attempts == 1, "it pauses between attempts"
    assert producer.collect(60).state == "stored"
    late = Producer(producer.stage, name="late")
    late.end()
    late.stage.runtime.next("list_files", failure)
    assert late.collect(GIVE_UP.total_seconds()).state == "failed"


@pytest.mark.heavy
def test_outputs_that_are_too_large_are_rejected_with_their_size(producer: Producer, settings: Any) -> None:
    settings.BERTH_OUTPUTS_MIB = 1
    producer.end()
    outputs = producer.collect()
    assert outputs.state == "failed"
    assert outputs.message == (
        "The outputs take 8.0 MiB, but the maximum is 1.0 MiB. Declare fewer paths. "
        "The largest file is results/big.bin (8.0 MiB)."
    )
    assert not CodeChunk.objects.exists()


@pytest.mark.heavy
def test_outputs_over_the_projects_storage_limit_are_rejected(producer: Producer, settings: Any) -> None:
    settings.BERTH_CODE_PROJECT_MIB = 1
    producer.end()
    outputs = producer.collect()
    assert (outputs.state, outputs.tree) == ("failed", None)
    assert "has 1 MiB for code and outputs" in outputs.message


@pytest.mark.heavy
def test_only_a_few_chunks_are_in_memory_at_once(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write_chunks = code.write_chunks

    def count(project: Any, parts: dict[str, bytes], at: Any) -> None:
        written.append(len(parts))
        write_chunks(project, parts, at)

    monkeypatch.setattr("projects.services.outputs.write_chunks", count)
    producer.leave({"results/big": b"".join(bytes([n]) * CHUNK_BYTES for n in range(6))})
    producer.end()
    assert producer.collect().state == "stored"
    assert written == [4, 2]


@pytest.mark.heavy
def test_output_copy_is_interrupted_if_the_scheduler_loses_leadership(producer: Producer) -> None:
    producer.end()
    producer.collector._stop_requested.set()
    with pytest.raises(LeadershipLost):
        producer.collect()
    assert PodOutputs.objects.get().state == "waiting"


@pytest.mark.heavy
def test_error_states_that_no_declared_output_path_is_a_file(producer: Producer) -> None:
    producer.leave({"scratch": b""})
    producer.end()
    outputs = producer.collect()
    assert (outputs.state, outputs.tree) == ("stored", None)
    assert outputs.message.startswith("None of the declared paths is a file")


def test_stored_files_are_kept_as_long_as_their_workload(producer: Producer) -> None:
    producer.end()
    producer.collect()
    later = producer.stage.clock.now() + timedelta(days=400)
    assert prune_code_store(open_store(), later, retention=timedelta(days=30)) == 0
    Workload.objects.filter(pk=producer.workload.pk).delete()
    assert not Pod.objects.exists()
    assert prune_code_store(open_store(), later, retention=timedelta(days=30)) == 1 + 3
    assert not CodeTree.objects.exists()
    assert list(open_store().keys(before=later)) == []


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["../x"], "is outside the pod's directory"), (["/etc"], "is outside the pod's directory"),
        (["a//b"], "is not a normalized path"), (["a", "a"], "has a path that occurs twice"),
        (["a", "a/b"], "has a path that is inside another path"), ([""], "is empty"),
        (["x" * 256], "longer than"), (["a"] * 33, "too many"),
    ],
)  # fmt: skip
def test_invalid_output_paths_are_rejected_at_submission(
    stage: Stage, outputs: list[str], message: str
) -> None:
    with pytest.raises(Invalid) as rejected:
        stage.submit("bad", outputs=outputs)
    assert message in str(rejected.value.problems[0])
