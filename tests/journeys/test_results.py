"""Test the path of metrics and outputs from programs in pods to the command line, in a running
installation.
"""

import re
from pathlib import Path

import pytest

from berth.client import Client
from berth.client.models.files import PodOutputs
from tests.journeys.command import Terminal
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import until

pytestmark = pytest.mark.timeout(900)


@pytest.mark.heavy
def test_guide_commands_show_metrics_and_the_best_task(
    dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    submit, compare = guide_examples("Watch metrics")
    run_as_written(dave, submit, tmp_path)
    curve, tune = client.workloads.find("curve"), client.arrays.find("tune")
    until(
        lambda: any(metric.last and metric.last.step == 99 for metric in client.workloads.metrics(curve.id))
    )
    until(
        lambda: (
            all(
                task.metric.last and task.metric.last.step == 99
                for task in client.arrays.metrics(tune.id, "loss")
            )
            and len(list(client.arrays.metrics(tune.id, "loss"))) == 3
        )
    )
    shown = run_as_written(dave, compare, tmp_path)
    assert re.search(r"^loss +0.0917431 +99 +0.0917431 +1 +█", shown, re.MULTILINE)
    assert "Best task: tune-2 (loss 0.0325733 at step 99)" in shown
    assert "Best task: tune-2 (accuracy 0.297 at step 99)" in shown
    assert re.search(r"^tune-2 +vision +0.0325733", shown, re.MULTILINE)
    client.workloads.delete(curve.id)
    client.arrays.delete(tune.id)


@pytest.mark.heavy
def test_guide_commands_store_and_download_outputs(dave_on_shared_berth: Terminal, tmp_path: Path) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    submit, download = guide_examples("Keep results")
    run_as_written(dave, submit, tmp_path)
    keeper = client.workloads.find("keeper")
    outputs = stored_outputs(client, keeper.id)
    assert (outputs.state, outputs.message, outputs.files) == ("stored", "", 2)
    shown = run_as_written(dave, download, tmp_path)
    assert re.search(r"^results/model.bin +1000 B$", shown, re.MULTILINE)
    assert (tmp_path / "best" / "results" / "model.bin").read_bytes() == bytes(1000)
    assert (tmp_path / "results" / "loss.csv").read_text() == "step,loss\n1,0.5\n"
    assert b"".join(client.outputs.read(keeper.id, "results/loss.csv")) == b"step,loss\n1,0.5\n"
    client.workloads.delete(keeper.id)


@pytest.mark.heavy
def test_guide_commands_list_and_delete_the_files_kept_from_a_failed_pod(
    dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    (example,) = guide_examples("Look inside a failed pod")
    shown = run_as_written(dave, example, tmp_path)
    assert re.search(r"^pod/state.txt +8 B$", shown, re.MULTILINE)
    assert "\nstep 41\n" in shown
    assert (tmp_path / "crash-files" / "pod" / "state.txt").read_text() == "step 41\n"
    crash = client.workloads.find("crash")
    (pod,) = client.workloads.pods(crash.id)
    assert (pod.exit_code, pod.files_until) == (3, None)
    client.workloads.delete(crash.id)


@pytest.mark.heavy
def test_stop_rule_in_the_guide_cancels_the_worst_tasks(
    dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    (example,) = guide_examples("Stop the worst tasks of an array")
    assert "min_tasks: 3" in example
    # A busy machine may apply the rule before the last task has reported.
    run_as_written(dave, example.replace("min_tasks: 3", "min_tasks: 4"), tmp_path)
    search = client.arrays.find("search")
    until(lambda: client.arrays.get(search.id).counts.cancelled == 2)
    stopped = {task.name: task.message for task in client.arrays.tasks(search.id, phase="cancelled")}
    assert stopped.keys() == {"search-3", "search-4"}
    assert "loss 4.5 at step 10, median 2 of 4 other tasks" in stopped["search-4"]
    client.arrays.cancel(search.id)
    client.arrays.wait(search.id)
    client.arrays.delete(search.id)


def stored_outputs(client: Client, workload_id: str) -> PodOutputs:
    """Wait until the outputs of a workload's only pod are stored, and return them."""
    (outputs,) = until(lambda: [row for row in client.outputs.list(workload_id) if row.state != "waiting"])
    return outputs


@pytest.mark.heavy
def test_symbolic_links_are_omitted_from_the_outputs_of_failed_and_suspended_pods(
    dave_on_shared_berth: Terminal,
) -> None:
    client = dave_on_shared_berth.client()
    write = "mkdir out; echo kept > out/file; ln -s /etc/passwd out/link; echo ready"
    document = {"project": "vision", "outputs": ["out"], "roles": [{"name": "worker", "replicas": 1}]}
    broken = client.workloads.submit({**document, "name": "broken", "command": f"{write}; exit 3"})
    paused = client.workloads.submit({**document, "name": "paused", "command": f"{write}; exec sleep 600"})
    until(lambda: client.workloads.get(paused.id).phase == "running")
    until(lambda: b"ready" in client.workloads.log(paused.id).data)
    client.workloads.suspend(paused.id)
    for workload in (broken, paused):
        outputs = stored_outputs(client, workload.id)
        assert (outputs.state, outputs.skipped) == ("stored", {"out/link": "is a symbolic link"})
        assert b"".join(client.outputs.read(workload.id, "out/file")) == b"kept\n"
    client.workloads.cancel(paused.id)
    for workload in (broken, paused):
        client.workloads.delete(workload.id)
