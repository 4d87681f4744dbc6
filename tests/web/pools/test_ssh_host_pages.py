"""Tests for the form, page and diagnosis of SSH pools."""

from pathlib import Path

import pytest
from django.test import Client

from pools.models import NodePool, PoolSecret, SshHost
from pools.providers.ssh.endpoint import fingerprint
from tests.cast import Cast
from tests.pools.ssh.sshd import generate_key, needs_sshd
from tests.web.conftest import SignIn
from tests.web.pools.test_pool_form import EC2_POOL
from tests.web.test_forms import errors

pytestmark = needs_sshd
HTMX = {"HX-Request": "true"}
HOSTS = """
- name: box-1
  address: 10.0.0.1
  host_key: {key}
- name: box-2
  address: 10.0.0.2
"""


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    return generate_key(tmp_path / "login")[0], generate_key(tmp_path / "host")[1]


@pytest.fixture
def metal(cast: Cast, alice: Client, keys: tuple[str, str]) -> NodePool:
    private, public = keys
    common = {name: value for name, value in EC2_POOL.items() if not name.startswith("aws_")}
    filled = {
        **common, "name": "metal", "provider": "ssh", "runtime": "", "private_key": private,
        "ssh_hosts": HOSTS.format(key=public), "ssh_user": "root", "ssh_port": "22",
        "ssh_key": "secret:ssh-key", "ssh_home": "/var/lib/berth-machine",
    }  # fmt: skip
    wrong = {**filled, "ssh_hosts": "- adress: 10.0.0.1"}
    shown = errors(alice.post("/node-pools/new", wrong, headers=HTMX))
    assert any("Entry 1, adress" in error for error in shown["ssh_hosts"])
    assert alice.post("/node-pools/new", filled, headers=HTMX).status_code == 204
    return NodePool.objects.get(name="metal")


def test_form_stores_hosts_and_private_key_and_never_shows_the_key(
    alice: Client, metal: NodePool, keys: tuple[str, str]
) -> None:
    assert metal.runtime == "ray"
    assert PoolSecret.objects.get(pool=metal).kind == "ssh_key"
    assert sorted(SshHost.objects.values_list("name", flat=True)) == ["box-1", "box-2"]
    page = alice.get("/node-pools/metal/settings").content.decode()
    assert "box-2" in page
    assert keys[0].splitlines()[1] not in page


def test_host_page_shows_problems_and_accepts_a_presented_key(
    alice: Client, metal: NodePool, keys: tuple[str, str]
) -> None:
    public = keys[1]
    SshHost.objects.filter(name="box-2").update(
        presented_key=public, problem="host_key", message="the host key has not been accepted"
    )
    assert 'href="/node-pools/metal/hosts"' in alice.get("/node-pools/metal").content.decode()
    assert "box-2: the host key has not been accepted." in alice.get("/node-pools/metal").content.decode()
    assert "the host key has not been accepted" in alice.get("/node-pools/metal/hosts").content.decode()
    question = alice.get("/node-pools/metal/hosts/box-2/accept", headers=HTMX).content.decode()
    assert fingerprint(public) in question
    stale = alice.post("/node-pools/metal/hosts/box-2/accept", {"key": "ssh-ed25519 AAAA"}, headers=HTMX)
    assert f"now presents {fingerprint(public)}" in stale.content.decode()
    assert not SshHost.objects.get(name="box-2").settings["host_key"]
    assert f'name="key" value="{public}"' in question
    accepted = alice.post("/node-pools/metal/hosts/box-2/accept", {"key": public}, headers=HTMX)
    assert accepted.status_code == 204
    assert SshHost.objects.get(name="box-2").settings["host_key"] == public
    assert alice.get("/node-pools/metal/hosts/box-2/accept", headers=HTMX).status_code == 404
    listed = alice.get("/node-pools/metal/hosts", {"format": "csv"})
    assert listed.status_code == 200


def test_only_platform_admins_see_ssh_hosts(metal: NodePool, sign_in: SignIn) -> None:
    assert sign_in("dave").get("/node-pools/metal/hosts").status_code in (403, 404)
