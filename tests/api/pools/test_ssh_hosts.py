"""Tests for SSH hosts over REST and their preview, with real SSH servers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pools.models import NodePool, PoolSecret, SshHost
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.pools.ssh.sshd import SshServer, generate_key, needs_sshd, silent_server, ssh_server

pytestmark = [needs_sshd, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd"), "127.0.0.2") as running:
        yield running


@pytest.fixture
def body(cast: Cast, server: SshServer, settings: Any, tmp_path: Path) -> dict[str, Any]:
    """Return the request body for a pool of three hosts: one with a pinned key, one without a key and one
    with a wrong key.
    """
    settings.BERTH_PUBLIC_URL = "https://berth.example.org"
    _, other = generate_key(tmp_path / "other")
    place = {"address": server.address, "port": server.port}
    hosts = [
        {"name": "pinned", **place, "host_key": server.host_key},
        {"name": "new", **place, "address": "127.0.0.3"},
        {"name": "changed", **place, "address": "127.0.0.4", "host_key": other},
    ]
    return {
        "name": "steel", "provider": "ssh", "nodes": [0, 3], "ssh_keys": {"ssh-key": server.private_key},
        "provider_settings": {"hosts": hosts, "user": os.environ.get("USER", "root")},
    }  # fmt: skip


@pytest.fixture
def more_servers(server: SshServer, tmp_path: Path) -> Iterator[None]:
    with (
        ssh_server(server.directory, "127.0.0.3", server.port),
        ssh_server(server.directory, "127.0.0.4", server.port),
    ):
        yield


@pytest.mark.usefixtures("more_servers")
def test_preview_shows_host_facts_and_fingerprints_and_stores_nothing(
    alice: Caller, body: dict[str, Any], server: SshServer
) -> None:
    answer = alice.post("node-pools?dry_run=true", body)
    assert answer.status_code == 200, answer.content
    pinned, new, changed = answer.json()["nodes"]
    assert (pinned["obstacle"], pinned["host_key"]) == (None, None)
    assert pinned["total"]["cpu"] == os.cpu_count()
    assert "Python 3" in pinned["details"]
    assert new["host_key"] == server.host_key
    assert "has not been accepted" in new["obstacle"]
    assert "is pinned" in changed["obstacle"]
    assert any("--accept-host-keys" in finding["remedy"] for finding in answer.json()["findings"])
    assert not NodePool.objects.filter(name="steel").exists()
    assert not PoolSecret.objects.exists()


@pytest.mark.heavy
def test_preview_reports_hosts_that_do_not_respond(
    alice: Caller, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.providers.ssh.examine.WITHIN", 1.0)
    monkeypatch.setattr("pools.providers.ssh.examine.AT_ONCE", 1)
    with silent_server("127.0.0.5") as port:
        body["provider_settings"]["hosts"] = [
            {"name": name, "address": "127.0.0.5", "port": port + extra}
            for name, extra in (("first", 0), ("second", 1))
        ]
        answer = alice.post("node-pools?dry_run=true", body)
    assert answer.status_code == 200, answer.content
    expected = "127.0.0.5 could not be examined within the 1 s of the preview"
    assert expected in [node["obstacle"] for node in answer.json()["nodes"]]


def test_only_the_presented_host_key_can_be_accepted(
    alice: Caller, body: dict[str, Any], server: SshServer
) -> None:
    assert alice.post("node-pools", body).status_code == 201
    SshHost.objects.filter(name="new").update(presented_key=server.host_key, message="not accepted")
    [changed, new, pinned] = alice.get("node-pools/steel/ssh-hosts").json()["items"]
    assert [changed["state"], new["state"], pinned["state"]] == ["pending", "unverified", "pending"]
    assert new["presented_fingerprint"].startswith("ed25519 SHA256:")
    other = changed["host_key"]
    rejected = alice.post("node-pools/steel/ssh-hosts/accept-keys", {"keys": {"new": other, "nwe": other}})
    assert [problem["path"] for problem in rejected.json()["errors"]] == ["keys.new", "keys.nwe"]
    accepted = alice.post("node-pools/steel/ssh-hosts/accept-keys", {"keys": {"new": server.host_key}})
    assert accepted.status_code == 204, accepted.content
    listed = {host["name"]: host for host in alice.get("node-pools/steel/ssh-hosts").json()["items"]}
    assert (listed["new"]["state"], listed["new"]["host_key"]) == ("pending", server.host_key)
    assert server.private_key not in json.dumps(alice.get("audit").json())


@pytest.mark.heavy
def test_edit_preserves_accepted_host_keys(alice: Caller, body: dict[str, Any], server: SshServer) -> None:
    alice.post("node-pools", body)
    hosts = [{key: value for key, value in host.items() if key != "host_key"} for host in listed_hosts(body)]
    changed = alice(
        "PATCH", "node-pools/steel", {"provider_settings": {**body["provider_settings"], "hosts": hosts}}
    )
    assert changed.json()["provider_settings"]["hosts"][0]["host_key"] == server.host_key
    bad = {"hosts": [{"address": "10.0.0.1", "prot": 22}, {"address": "10.0.0.1", "home": "/data"}]}
    errors = alice("PATCH", "node-pools/steel", {"provider_settings": bad}).json()["errors"]
    assert (errors[0]["path"], errors[0]["allowed"]) == (
        "provider_settings.hosts[0].prot",
        "Did you mean `port`?",
    )
    assert "host 10.0.0.1" in errors[0]["message"]
    assert errors[1]["path"] == "provider_settings.hosts[1].home"
    other = {
        **body,
        "name": "iron",
        "provider_settings": {"hosts": [{**listed_hosts(body)[0], "name": "mine"}]},
    }
    [problem] = alice.post("node-pools", other).json()["errors"]
    assert "belongs to pool steel as pinned" in problem["message"]


@pytest.mark.heavy
def test_workloads_cannot_use_the_ssh_key_of_a_pool(
    alice: Caller, body: dict[str, Any], server: SshServer, tmp_path: Path
) -> None:
    protected, _ = generate_key(tmp_path / "protected", passphrase="a passphrase")
    [problem] = alice.post("node-pools", {**body, "ssh_keys": {"ssh-key": protected}}).json()["errors"]
    assert problem["path"] == "ssh_keys.ssh-key"
    assert "ssh-keygen -p" in problem["message"]
    alice.post("node-pools", body)
    secret = alice.get("node-pools/steel/secrets/ssh-key").json()
    assert secret["kind"] == "ssh_key"
    document = {
        "name": "thief", "project": "vision", "pools": ["steel"], "command": ["env"],
        "roles": [{"name": "main", "cpu": 1, "memory_mib": 64}],
        "secrets": [{"name": "ssh-key", "env": "KEY"}],
    }  # fmt: skip
    rejected = alice.post("workloads", document)
    assert rejected.status_code in (409, 422), rejected.content
    assert "ssh-key" in rejected.content.decode()
    wrong = alice("PUT", "projects/vision/secrets/mine", {"ssh_key": server.private_key})
    assert wrong.json()["errors"][0]["path"] == "ssh_key"


@pytest.mark.heavy
def test_ssh_key_may_be_a_secret_that_is_set_after_the_pool_is_created(
    alice: Caller, body: dict[str, Any], server: SshServer
) -> None:
    values = {name: value for name, value in body.items() if name != "ssh_keys"}
    values["provider_settings"] = {**body["provider_settings"], "key": "secret:later"}
    pinned = alice.post("node-pools?dry_run=true", values).json()["nodes"][0]
    assert pinned["obstacle"].endswith(
        "the new pool has no SSH key later yet. Create the pool with the key's file (`--key FILE`), or "
        "create the pool with `--yes`, then run `berth secret set later --pool steel --ssh-key --file KEY`"
    )
    with_key = {**values, "ssh_keys": {"later": server.private_key}}
    assert alice.post("node-pools?dry_run=true", with_key).json()["nodes"][0]["obstacle"] is None
    assert alice.post("node-pools", values).status_code == 201
    stored = alice("PUT", "node-pools/steel/secrets/later", {"ssh_key": server.private_key})
    assert stored.json()["kind"] == "ssh_key"


def listed_hosts(body: dict[str, Any]) -> list[dict[str, Any]]:
    hosts: list[dict[str, Any]] = body["provider_settings"]["hosts"]
    return hosts
