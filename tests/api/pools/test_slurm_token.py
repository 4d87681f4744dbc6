"""Tests that REST stores and uses the slurmrestd token and never returns it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.joining.sealed import unseal
from pools.models import NodePool
from projects.models import Audit
from tests.api.conftest import Caller
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm.rest import TOKEN, USER, FakeSlurmRest, serve

KEY_DATA = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[FakeSlurmRest]:
    with serve(FakeSlurmRest(FakeSlurm(tmp_path / "slurm"))) as running:
        yield running


@pytest.fixture
def body(rest: FakeSlurmRest) -> dict[str, Any]:
    settings = {"rest_url": rest.url, "rest_user": USER, "partition": "gpu", "time_limit": "23h"}
    return {
        "name": "hpc", "provider": "slurm", "nodes": [0, 4], "gpus_per_node": 2, "cpu": 4,
        "memory_mib": 8192, "provider_settings": settings, "slurm_token": f"SLURM_JWT={TOKEN}\n",
    }  # fmt: skip


def test_token_is_stored_encrypted_and_never_returned(alice: Caller, body: dict[str, Any]) -> None:
    created = alice.post("node-pools", body)
    assert created.status_code == 201
    pool = NodePool.objects.get(name="hpc")
    assert unseal(pool.slurm_token_sealed) == TOKEN
    stored = [json.dumps([entry.before, entry.after], default=str) for entry in Audit.objects.all()]
    shown = [created.content.decode(), alice.get("node-pools/hpc").content.decode(), *stored]
    assert not [text for text in shown if TOKEN in text or pool.slurm_token_sealed in text]
    assert any('"slurm_token": "set (' in text for text in stored)
    assert alice("PATCH", "node-pools/hpc", {"slurm_token": TOKEN}).status_code == 200
    pool.refresh_from_db()
    assert unseal(pool.slurm_token_sealed) == TOKEN


@pytest.mark.parametrize("token", [7, "s3cret", f"{TOKEN} s3cret", "s3cret" * 4000, f"s3cret.{TOKEN}"])
def test_error_for_an_invalid_token_does_not_contain_the_token(
    alice: Caller, body: dict[str, Any], token: object
) -> None:
    response = alice.post("node-pools", {**body, "slurm_token": token})
    assert response.status_code == 422
    assert [problem["path"] for problem in response.json()["errors"]] == ["slurm_token"]
    assert "s3cret" not in response.content.decode()


@pytest.mark.heavy
def test_token_of_another_provider_is_rejected(alice: Caller, body: dict[str, Any]) -> None:
    other = {**body, "provider": "static", "provider_settings": {}}
    [problem] = alice.post("node-pools", other).json()["errors"]
    assert (problem["path"], problem["message"]) == ("slurm_token", "is not used by the provider static")


@pytest.mark.heavy
def test_preview_uses_the_token_without_storing_it(
    alice: Caller, body: dict[str, Any], rest: FakeSlurmRest
) -> None:
    preview = alice.post("node-pools?dry_run=true", body).json()
    assert preview["source"].startswith(f"slurm 22.05.8 at {rest.url}, API v0.0.42, partition gpu")
    assert len(preview["nodes"]) == 4
    rejected = alice.post("node-pools?dry_run=true", {**body, "slurm_token": TOKEN[:-4]}).json()
    assert "rejects the token of user berth" in rejected["findings"][0]["message"]
    assert not NodePool.objects.filter(name="hpc").exists()
    assert rest.slurm.jobs == []


@pytest.mark.heavy
def test_preview_explains_how_a_new_pool_gets_its_login_node_key(alice: Caller, body: dict[str, Any]) -> None:
    login = {
        "address": "127.0.0.1", "user": "berth", "key": "secret:hpc", "host_key": "ssh-ed25519 " + KEY_DATA,
    }  # fmt: skip
    del body["slurm_token"]
    preview = alice.post("node-pools?dry_run=true", {**body, "provider_settings": {"login": login}}).json()
    assert "(`--key FILE`)" in preview["findings"][0]["message"]
    assert "`berth secret set hpc --pool hpc --ssh-key --file KEY`" in preview["findings"][0]["message"]
