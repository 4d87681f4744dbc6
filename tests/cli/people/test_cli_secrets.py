"""Tests for `berth secret`: values come from stdin, a file or a prompt, and are never printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from pools.joining.sealed import unseal
from pools.models import PoolSecret
from projects.models import ProjectSecret, Workload
from projects.services import workloads
from tests import factories as make
from tests.cast import Cast, training
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def as_carol(cast: Cast) -> dict[str, str]:
    return {"BERTH_TOKEN": token_of(cast.carol), "BERTH_PROJECT": "vision"}


def values() -> dict[str, str]:
    return {row.name: unseal(row.sealed) for row in (*ProjectSecret.objects.all(), *PoolSecret.objects.all())}


def test_project_secret_can_be_set_from_stdin_or_files(
    berth: Berth, as_carol: dict[str, str], tmp_path: Path
) -> None:
    printed = []

    def run(*words: str, typed: str = "") -> str:
        done = berth("secret", *words, typed=typed, **as_carol)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout + done.stderr)
        return done.stdout

    key = tmp_path / "key.pem"
    key.write_text(f"{TOKEN}\r\nsecond\n", newline="")
    assert run("set", "hf-token", typed=f"{TOKEN}\n") == "Secret hf-token created (version 1).\n"
    run("set", "key", "--file", str(key))
    run("set", "hub", "--registry", "docker.io", "-u", "berth", typed=TOKEN)
    assert values() == {"hf-token": TOKEN, "key": f"{TOKEN}\r\nsecond\n", "hub": TOKEN}
    rows = json.loads(run("list", "-o", "json"))
    assert [(row["name"], row["kind"], row["registry"]) for row in rows] == [
        ("hf-token", "value", None), ("hub", "registry", "docker.io"), ("key", "value", None),
    ]  # fmt: skip
    heads = ["NAME", "KIND", "REGISTRY", "USER", "VERSION", "UPDATED", "BY"]
    assert run("list").splitlines()[0].split() == heads
    assert run("delete", "key") == "key deleted\n"
    assert TOKEN not in "".join(printed)


def test_setting_a_secret_lists_workloads_that_run_with_an_older_version(
    berth: Berth, as_carol: dict[str, str], cast: Cast
) -> None:
    def run(*words: str, typed: str = "") -> str:
        done = berth("secret", *words, typed=typed, **as_carol)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("set", "hf-token", typed=TOKEN)
    workload = workloads.submit(
        actor=cast.dave, document=training("bert", secrets=[{"name": "hf-token", "env": "HF_TOKEN"}])
    )
    Workload.objects.filter(pk=workload.pk).update(phase="running", run=1)
    make.secret_use(workload, ProjectSecret.objects.get(), run=1)
    assert run("uses", "hf-token", "--outdated") == ""
    assert run("set", "hf-token", typed=f"{TOKEN}2").splitlines() == [
        "Secret hf-token replaced (version 2).",
        "Running with an older version until they start again: vision/bert",
    ]
    (use,) = json.loads(run("uses", "hf-token", "--outdated", "-o", "json"))
    assert (use["name"], use["run"], use["version"], use["outdated"]) == ("bert", 1, 1, True)
    assert run("uses", "hf-token").splitlines()[1].split()[:4] == ["vision/bert", "1", "1", "yes"]


def test_pool_secret_is_set_by_a_platform_admin(berth: Berth, cast: Cast, as_carol: dict[str, str]) -> None:
    rejected = berth("secret", "set", "a", "--pool", "local", typed=TOKEN, **as_carol)
    assert (rejected.returncode, TOKEN in rejected.stderr) == (1, False)
    as_alice = {"BERTH_TOKEN": token_of(cast.alice)}
    assert berth("secret", "set", "a", "--pool", "local", typed=TOKEN, **as_alice).returncode == 0
    assert values() == {"a": TOKEN}
    assert "a " in berth("secret", "list", "--pool", "local", **as_carol).stdout
    assert berth("secret", "set", "b", "--personal", typed=TOKEN, **as_carol).returncode == 0
    assert berth("secret", "list", "--personal", **as_carol).stdout.splitlines()[1].startswith("b ")
    clash = berth("secret", "list", "--personal", "--pool", "local", **as_carol)
    assert (clash.returncode, "cannot be combined" in clash.stderr) == (2, True)
    words = ("--name", "x", "--dry-run", "--secret", "personal/b=KEY", "-o", "json", "--", "env")
    document = berth("submit", *words, **as_carol)
    assert document.returncode == 0, document.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "a", "--registry", "docker.io"], "use --registry and --username together"),
        (["set", "a", "--pool", "local", "-p", "vision"], "--project cannot be combined with --pool"),
        (["set", "a", "--file", "/nowhere"], "/nowhere cannot be read: No such file or directory"),
        (["set", "a"], "the value is empty"),
        (["set", "a", TOKEN], "unexpected extra argument"),
    ],
)
def test_invalid_secret_options_are_rejected(
    berth: Berth, as_carol: dict[str, str], words: list[str], message: str
) -> None:
    done = berth("secret", *words, **as_carol)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not values()


def test_binary_file_is_rejected_as_a_secret_value(
    berth: Berth, as_carol: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe")
    done = berth("secret", "set", "a", "--file", str(file), **as_carol)
    assert (done.returncode, "not UTF-8 text" in done.stderr) == (2, True)


def test_secret_options_are_stored_in_the_document_of_the_workload(
    berth: Berth, as_carol: dict[str, str]
) -> None:
    berth("secret", "set", "hf-token", typed=TOKEN, **as_carol)
    done = berth("submit", "-n", "train", "--secret", "hf-token=HF_TOKEN", "--secret-file", "hf-token=t.txt",
                 "--", "true", **as_carol)  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected: Any = [{"name": "hf-token", "env": "HF_TOKEN"}, {"name": "hf-token", "file": "t.txt"}]
    assert Workload.objects.get().spec["secrets"] == expected
    rejected = berth("submit", "-n", "two", "--secret", "hf-tokn=HF_TOKEN", "--", "true", **as_carol)
    assert rejected.returncode != 0
    assert "Did you mean `hf-token`?" in rejected.stderr
    malformed = berth("submit", "-n", "two", "--secret", "hf-token", "--", "true", **as_carol)
    assert "NAME=VARIABLE" in malformed.stderr
