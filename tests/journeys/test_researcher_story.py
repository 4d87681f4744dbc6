"""A researcher's path from a repository to the best model, with the commands of the guide."""

import subprocess
from pathlib import Path

import pytest

from berth.client import Client
from tests.journeys.command import Terminal
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import until

pytestmark = pytest.mark.timeout(900)
PROGRAM, TRAIN, SWEEP, SUBMIT, SHELL, METRICS, URGENT, AFTERWARDS, ARRAY, BEST = guide_examples(
    "A complete example"
)


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    """Create the guide's repository `vision/line.git`, and return the directory of repositories."""
    checkout = tmp_path / "repositories" / "vision" / "line.git"
    checkout.mkdir(parents=True)
    for name, content in (("train.py", PROGRAM), ("train.yaml", TRAIN), ("sweep.yaml", SWEEP)):
        (checkout / name).write_text(content)
    author = ("-c", "user.name=dave", "-c", "user.email=dave@example.org")
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        (*author, "commit", "-q", "-m", "Add trainer"),
    ):
        subprocess.run(["git", "-C", str(checkout), *command], check=True, capture_output=True)
    return tmp_path / "repositories"


def log_text(client: Client, workload_id: str, run: int | None = None) -> str:
    return client.workloads.log(workload_id, run=run).data.decode()


@pytest.mark.heavy
def test_example_commands_take_a_researcher_from_a_repository_to_the_best_model(
    dave_on_shared_berth: Terminal, repositories: Path, tmp_path: Path
) -> None:
    dave, client = dave_on_shared_berth, dave_on_shared_berth.client()
    git = {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{repositories}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.example.org/",
    }  # fmt: skip
    run_as_written(dave, SUBMIT, tmp_path, **git)
    checkout = tmp_path / "line"
    train = client.workloads.find("train")
    assert train.code is not None
    assert (train.code.branch, train.code.dirty, train.code.files) == ("main", False, 3)
    until(lambda: client.workloads.metrics(train.id))

    typed = "ls; exit\n"
    assert "sweep.yaml" in run_as_written(dave, SHELL, checkout, typed=typed)
    assert run_as_written(dave, METRICS, checkout).splitlines()[1].split()[0] == "loss"

    run_as_written(dave, URGENT, checkout)
    urgent = client.workloads.find("urgent")
    until(lambda: client.workloads.get(urgent.id).has_ended)
    assert client.workloads.get(urgent.id).phase == "completed", log_text(client, urgent.id)
    until(lambda: client.workloads.get(train.id).run == 2)
    until(lambda: "starting at step" in log_text(client, train.id, 2))
    shown = run_as_written(dave, AFTERWARDS, checkout)
    assert "SIGUSR1 sent to 4 pods" in shown
    saved = shown.partition("saved step ")[2].split()[0]
    assert int(saved) > 0
    assert f"starting at step {saved}\n" in shown
    [eviction] = dave.json("evictions", "--workload", "train")
    assert (eviction["kind"], eviction["preemptor_name"]) == ("preempt", "urgent")

    run_as_written(dave, ARRAY, checkout)
    sweep = client.arrays.find("sweep")
    assert sweep.counts.completed == 12
    until(lambda: len(list(client.arrays.metrics(sweep.id, "loss"))) == 12)
    best = next(iter(client.arrays.metrics(sweep.id, "loss")))
    assert best.index in range(9, 12), "the tasks with the highest learning rate come last"
    until(lambda: [row.state for row in client.outputs.list(best.id)] == ["stored"])
    shown = run_as_written(dave, BEST, checkout)
    assert shown.count(f"Best task: {best.workload} ") == 2
    weight = float((checkout / "best" / "results" / "weight.txt").read_text())
    assert weight == pytest.approx(3, abs=1e-4)
    for workload in (train, urgent):
        client.workloads.delete(workload.id)
    client.arrays.delete(sweep.id)
