"""Tests for `berth edit` against a real server."""

import os
import pty
import subprocess
from pathlib import Path

import pytest
import yaml

from projects.models import Workload
from projects.services.workloads import submission
from tests.cast import Cast, training
from tests.cli.conftest import ROOT, RUN, Berth, token_of

MANIFEST = ROOT / "examples" / "training-job" / "training_job.yaml"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def train(cast: Cast) -> Workload:
    document = training("train", priority=50, max_runtime=3600, labels={"team": "a"})
    return submission.submit(actor=cast.dave, project=cast.vision, document=document)


@pytest.fixture
def as_dave(cast: Cast, environment: dict[str, str]) -> dict[str, str]:
    environment["BERTH_TOKEN"] = token_of(cast.dave)
    return environment


def test_set_and_unset_options_edit_the_document(
    berth: Berth, as_dave: dict[str, str], train: Workload
) -> None:
    shown = berth("edit", "train", "--set", "priority=60", "--unset", "labels.team", "--dry-run")
    assert shown.stdout.splitlines()[:6] == [
        "vision/train would be edited:",
        '  labels: {"team": "a"} -> not set',
        "  priority: 50 -> 60",
        "It is still ordered by its original submission time.",
        "In the next scheduling cycle:",
        "train: would start after 1 node has booted",
    ]
    assert berth("edit", "train", "--set", "priority=60", "--unset", "max_runtime").stdout.splitlines() == [
        "vision/train edited:",
        "  max_runtime: 3600 -> not set",
        "  priority: 50 -> 60",
        "It requests unlimited runtime instead of 1h, so it is queued as if submitted now.",
    ]
    train.refresh_from_db()
    assert (train.priority, train.max_runtime, train.labels) == (60, None, {"team": "a"})
    assert berth("edit", "train", "--set", "priority=60").stdout == "vision/train already has these values.\n"


def test_edit_from_a_file_replaces_the_document(
    berth: Berth, as_dave: dict[str, str], train: Workload, tmp_path: Path
) -> None:
    (tmp_path / "train.yaml").write_text("name: train\ncommand: 'true'\nroles: [{gpu: 1}]\npriority: high\n")
    done = berth("edit", "train", "-f", str(tmp_path / "train.yaml"))
    assert 'labels: {"team": "a"} -> not set' in done.stdout
    train.refresh_from_db()
    assert (train.labels, train.gpu_milli_min) == ({}, 1000)


def test_edit_from_a_manifest_replaces_the_document(
    berth: Berth, as_dave: dict[str, str], cast: Cast, tmp_path: Path
) -> None:
    text = MANIFEST.read_text()
    workload = submission.submit(actor=cast.dave, document=yaml.safe_load(text))
    (tmp_path / "job.yaml").write_text(text.replace("max-instance: 6", "max-instance: 5"))
    done = berth("edit", "digits", "-f", str(tmp_path / "job.yaml"))
    assert done.returncode == 0, done.stderr
    assert ".max: 6 -> 5" in done.stdout
    workload.refresh_from_db()
    assert workload.edits == 1


def test_rejected_edit_is_explained_and_changes_nothing(
    berth: Berth, as_dave: dict[str, str], train: Workload
) -> None:
    unknown = berth("edit", "train", "--set", "prioritty=60")
    assert unknown.returncode != 0
    assert "Did you mean `priority`?" in unknown.stderr
    fixed = berth("edit", "train", "--set", "name=other")
    assert fixed.returncode != 0
    assert "name: cannot be edited" in fixed.stderr
    both = berth("edit", "train", "--set", "priority=60", "-f", "train.yaml")
    assert "cannot be combined" in both.stderr
    missing = berth("edit", "train", "--unset", "deadline")
    assert "does not contain deadline" in missing.stderr
    assert "--unset or --file" in berth("edit", "train").stderr
    train.refresh_from_db()
    assert train.edits == 0


def run_with_editor(environment: dict[str, str], editor: str) -> tuple[int, str]:
    """Run `berth edit train` with a shell command as the editor. Return the exit code and stderr."""
    terminal, device = pty.openpty()
    try:
        done = subprocess.run(
            [*RUN, "edit", "train"],
            stdin=device,
            env={**environment, "EDITOR": editor, "VISUAL": editor, "TERM": "dumb"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(terminal)
        os.close(device)
    return done.returncode, done.stderr


def test_edit_command_without_options_opens_an_editor(
    as_dave: dict[str, str], train: Workload, tmp_path: Path
) -> None:
    code, errors = run_with_editor(as_dave, "sed -i 's/priority: 50/priority: 70/'")
    assert (code, errors) == (0, "")
    train.refresh_from_db()
    assert train.priority == 70


def test_rejected_document_is_kept_in_a_file(
    as_dave: dict[str, str], train: Workload, tmp_path: Path
) -> None:
    as_dave["TMPDIR"] = str(tmp_path)
    code, errors = run_with_editor(as_dave, "sed -i 's/priority: 50/priority: 5000/'")
    assert code != 0
    (copy,) = tmp_path.glob("train-*.yaml")
    assert "priority: 5000" in copy.read_text()
    assert f"berth edit vision/train -f {copy}" in errors
    train.refresh_from_db()
    assert train.priority == 50
