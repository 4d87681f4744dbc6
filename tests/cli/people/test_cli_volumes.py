"""Tests that admins define volumes, and members mount them, with the commands in the guides."""

import shlex

import pytest

from pools.models import NodePool
from projects.models import Workload
from tests.cast import Cast
from tests.cli.conftest import ROOT, Berth, token_of
from tests.factories import node

pytestmark = pytest.mark.django_db(transaction=True)


def commands(guide: str, section: str) -> list[list[str]]:
    text = (ROOT / "docs" / guide).read_text()
    example = text.partition(f"## {section}\n")[2].split("```")[1]
    return [shlex.split(line)[1:] for line in example.strip().splitlines()]


def test_commands_in_the_guides_define_show_and_mount_volumes(berth: Berth, cast: Cast) -> None:
    node(cast.pool, labels={"disk": "nvme"})
    node(cast.pool, labels={})
    admin, member = {"BERTH_TOKEN": token_of(cast.alice)}, {"BERTH_TOKEN": token_of(cast.dave)}
    for command in commands("admins.md", "Volumes"):
        done = berth(*command, **admin)
        assert done.returncode == 0, (command, done.stderr)
        if command[:2] == ["pool", "describe"]:
            assert "datasets at /mnt/datasets, read-only, for all projects" in done.stdout
    stored = NodePool.objects.get(name="local").volumes
    assert [entry["name"] for entry in stored] == ["datasets", "scratch"]
    assert stored[1] == {
        "name": "scratch", "source": "/mnt/scratch", "access": "read_write", "nodes": {"disk": "nvme"},
        "projects": ["vision", "speech"],
    }  # fmt: skip

    describe, submit = commands("researchers.md", "Use shared data")
    shown = berth(*describe, **member)
    assert "scratch in pool local, read-write, on 1 of 2 nodes" in " ".join(shown.stdout.split())
    done = berth(*submit, **member)
    assert done.returncode == 0, done.stderr
    assert Workload.objects.get(name="reads-data").spec["volumes"] == [
        {"name": "datasets", "path": "/data", "read_only": True}, {"name": "scratch", "path": "/scratch"},
    ]  # fmt: skip
    assert "/mnt" not in berth("pool", "describe", "local", **member).stdout

    refused = berth("submit", "-n", "typo", "--volume", "dataset:/data", "--", "true", **member)
    assert "Did you mean `datasets`?" in refused.stderr
    assert "NAME:PATH" in berth("submit", "-n", "x", "--volume", "datasets", "--", "true", **member).stderr
    wrong = berth("pool", "edit", "local", "--volume", "data=/mnt/data,writable", **admin)
    assert "NAME=SOURCE[,read_write]" in wrong.stderr
    assert berth("pool", "edit", "local", "--volume", "", **admin).returncode == 0
    assert NodePool.objects.get(name="local").volumes == []
