"""Tests for the quota group commands."""

import json
from typing import Any

import pytest

from pools.models import NodePool
from projects.models import Quota
from tests import factories
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def as_alice(cast: Cast) -> dict[str, str]:
    for name in ("metal", "hosts", "cloud"):
        factories.pool(name, gpu_model="H100")
    return {"BERTH_TOKEN": token_of(cast.alice)}


@pytest.mark.heavy
def test_quota_group_is_created_edited_and_deleted(
    berth: Berth, as_alice: dict[str, str], cast: Cast
) -> None:
    def run(*words: str, code: int = 0) -> Any:
        result = berth(*words, **as_alice)
        assert result.returncode == code, result.stderr
        return result

    assert run("quota", "group", "list").stderr == (
        "No quota groups. Create one with `berth quota group create NAME POOL`.\n"
    )
    created = run("quota", "group", "create", "h100", "metal", "hosts", "cloud")
    assert created.stdout == "Quota group h100 created.\n"
    run("quota", "set", "vision", "--pool", "h100", "--gpu", "64", "--gpu-limit", "80")
    factories.queue_status(cast.vision, NodePool.objects.get(name="metal"),
                           share=24, allocated=24, requested=24)  # fmt: skip
    factories.queue_status(cast.vision, NodePool.objects.get(name="cloud"),
                           share=16, allocated=16, requested=16)  # fmt: skip
    assert run("quota", "show", "--pool", "metal").stdout.split("\n")[2].split() == [
        "vision", "h100", "64", "40", "40", "0", "40", "80", "1", "yes",
    ]  # fmt: skip
    (shown,) = json.loads(run("quota", "show", "vision", "-o", "json").stdout)
    assert (shown["pool"], sorted(shown["pools"])) == ("h100", ["cloud", "hosts", "metal"])

    pools = run("quota", "group", "preview", "h100", "metal", "cloud", code=1)
    assert pools.stdout == (
        "pools: cloud, hosts, metal -> cloud, metal\n\nQuotas, in GPUs\n"
        "  vision in pool hosts: 64 -> 0 (0 allocated)\n"
    )
    same = run("quota", "group", "preview", "h100", "metal", "hosts", "cloud")
    assert same.stdout == "pools: cloud, hosts, metal: unchanged\n"
    assert "does not exist" in run("quota", "group", "preview", "h100", "moon", code=255).stderr
    preview = run("quota", "preview", "--set", "research/vision:h100.gpu=48", code=1)
    assert preview.stdout.startswith("vision in quota group h100: gpu 64 -> 48\n")
    rejected = run("quota", "set", "vision", "--pool", "metal", "--gpu", "8", code=2)
    assert "overlaps with vision's quota in quota group h100" in rejected.stderr
    run("quota", "apply", "--remove", "research/vision:h100", "--set", "research/vision:metal.gpu=8", "-y")
    assert str(Quota.objects.get()) == "vision in pool metal"
    assert "vision in quota group h100: removed" in run("quota", "history").stdout

    edited = run("quota", "group", "edit", "h100", "metal", "cloud")
    assert edited.stdout == "Quota group h100: cloud, metal\n"
    assert run("quota", "group", "list").stdout.split("\n")[1].split() == ["h100", "cloud,", "metal"]
    assert run("quota", "group", "delete", "h100").stdout == "Quota group h100 deleted.\n"


def test_python_client_manages_quota_groups(berth: Berth, as_alice: dict[str, str], live_server: Any) -> None:
    from berth.client import Client
    from berth.client.config import Settings

    settings = Settings(address=live_server.url, token=as_alice["BERTH_TOKEN"])
    with Client(settings) as client:
        assert client.quota_groups.create("h100", ["metal", "cloud"]).pools == ["cloud", "metal"]
        assert client.quotas.create("project", "vision", "h100", {"gpu": 64}).pool == "h100"
        assert client.quota_groups.preview("h100", ["metal"]).quotas[0].after.gpu == 0
        assert client.quota_groups.edit("h100", ["metal"]).version == 2
        assert [group.name for group in client.quota_groups.list()] == ["h100"]
        assert client.quota_groups.get("h100").pools == ["metal"]
