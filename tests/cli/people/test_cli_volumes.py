"""Tests that admins can define volumes, and members can mount them, with the commands in the guides."""

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
    example = text.partition(f"# {section}\n")[2].split("```")[1]
    return [shlex.split(line)[1:] for line in example.strip().splitlines()]


@pytest.mark.heavy
def test_documented_commands_create_and_mount_volumes(berth: Berth, cast: Cast) -> None:
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

    describe, submit = commands("researchers/code-and-data.md", "Use shared data")
    shown = berth(*describe, **member)
    assert "scratch in pool local, read-write, on 1 of 2 nodes" in " ".join(shown.stdout.split())
    done = berth(*submit, **member)
    assert done.returncode == 0, done.stderr
    assert Workload.objects.get(name="reads-data").spec["volumes"] == [
        {"name": "datasets", "path": "/data", "read_only": True}, {"name": "scratch", "path": "/scratch"},
    ]  # fmt: skip
    assert "/mnt" not in berth("pool", "describe", "local", **member).stdout

    rejected = berth("submit", "-n", "typo", "--volume", "dataset:/data", "--", "true", **member)
    assert "Did you mean `datasets`?" in rejected.stderr
    assert "NAME:PATH" in berth("submit", "-n", "x", "--volume", "datasets", "--", "true", **member).stderr
    wrong = berth("pool", "edit", "local", "--volume", "data=/mnt/data,writable", **admin)
    assert "NAME=SOURCE[,read_write]" in wrong.stderr
    assert berth("pool", "edit", "local", "--volume", "", **admin).returncode == 0
    assert NodePool.objects.get(name="local").volumes == []


@pytest.mark.heavy
def test_volume_for_an_unknown_project_is_rejected_unless_the_project_was_deleted(
    berth: Berth, cast: Cast
) -> None:
    admin = {"BERTH_TOKEN": token_of(cast.alice)}
    edit = ("pool", "edit", "local", "--volume")
    error = "volumes[0].projects: does not exist; received 'visionx'. Did you mean `vision`?"
    for more in ((), ("--dry-run",)):
        rejected = berth(*edit, "data=/mnt/data,projects=visionx", *more, **admin)
        assert (rejected.returncode, rejected.stdout) == (2, "")
        assert error in rejected.stderr
    assert NodePool.objects.get(name="local").volumes == []
    assert berth(*edit, "data=/mnt/data,projects=speech", **admin).returncode == 0
    cast.speech.delete()
    for more in (("--dry-run",), ()):
        assert berth(*edit, "data=/mnt/other,projects=speech", *more, **admin).returncode == 0


@pytest.mark.heavy
def test_documented_commands_create_and_mount_an_s3_volume(berth: Berth, cast: Cast) -> None:
    node(cast.pool)
    admin, member = {"BERTH_TOKEN": token_of(cast.alice)}, {"BERTH_TOKEN": token_of(cast.dave)}
    set_secret, edit, describe = commands("admins.md", "Objects in S3")
    rejected = berth(*edit, **admin)
    assert "volumes[0].secret: is not a secret of this pool with an S3 access key" in rejected.stderr
    assert "berth secret set s3-reader --pool local --access-key-id ID" in " ".join(rejected.stderr.split())
    done = berth(*set_secret, typed="secret-access-key\n", **admin)
    assert "Secret s3-reader created (version 1)." in done.stdout, done.stderr
    listed = berth("secret", "list", "--pool", "local", **member).stdout
    assert "s3_key" in listed
    assert "AKIAIOSFODNN7EXAMPLE" in listed
    assert berth(*edit, **admin).returncode == 0
    shown = " ".join(berth(*describe, **admin).stdout.split())
    assert (
        "imagenet at s3://ml-datasets/imagenet, read-only, region eu-west-1, up to 200 GiB, "
        "secret s3-reader, for vision"
    ) in shown
    assert NodePool.objects.get(name="local").volumes == [
        {
            "name": "imagenet", "source": "s3://ml-datasets/imagenet", "access": "read_only", "nodes": {},
            "projects": ["vision"], "endpoint": "", "region": "eu-west-1", "secret": "s3-reader",
            "max_gib": 200,
        }
    ]  # fmt: skip

    submit, _ = commands("researchers/code-and-data.md", "Read a dataset from S3")
    done = berth(*submit, **member)
    assert done.returncode == 0, done.stderr
    assert Workload.objects.get(name="reads-s3").spec["volumes"] == [{"name": "imagenet", "path": "/data"}]
    key = ("secret", "set", "s3-writer", "--pool", "local", "--access-key-id", "ID")
    assert berth(*key, typed="key\n", **admin).returncode == 0
    [edit] = commands("admins.md", "Writable volumes in S3")
    assert berth(*edit, **admin).returncode == 0
    shown = " ".join(berth("pool", "describe", "local", **admin).stdout.split())
    assert "checkpoints at s3://ml-results/checkpoints, read-write" in shown
    wrong = berth("pool", "edit", "local", "--volume", "x=s3://bucket,size=3", **admin)
    assert "OPTION: projects, nodes, endpoint, region, secret, max_gib" in wrong.stderr
    wrong = berth("secret", "set", "x", "--pool", "local", "--access-key-id", "I", "--ssh-key", **admin)
    assert "--access-key-id can only be combined with --pool and --file" in wrong.stderr
