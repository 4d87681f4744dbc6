"""Tests for the private key of a login node in the forms of Slurm pools."""

from pathlib import Path

import pytest
from django.test import Client

from pools.models import NodePool, PoolSecret
from tests.cast import Cast
from tests.pools.ssh.sshd import generate_key, needs_sshd
from tests.web.conftest import SignIn
from tests.web.pools.test_pool_form import EC2_POOL
from tests.web.test_forms import errors

pytestmark = needs_sshd
HTMX = {"HX-Request": "true"}
LOGIN = """
address: login.example.org
user: berth
host_key: {key}
"""


@pytest.fixture
def alice(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("alice")


@pytest.fixture
def form_values(tmp_path: Path) -> dict[str, str]:
    private, public = generate_key(tmp_path / "login")[0], generate_key(tmp_path / "host")[1]
    common = {name: value for name, value in EC2_POOL.items() if not name.startswith("aws_")}
    return {
        **common, "name": "hpc", "provider": "slurm", "runtime": "", "login_key": private,
        "slurm_login": LOGIN.format(key=public), "slurm_gres": "gpu", "slurm_notice_lead": "10m",
        "slurm_exclusive": "on", "slurm_directory": "~/.berth", "slurm_time_limit": "24h",
    }  # fmt: skip


def test_form_stores_the_login_node_key_and_never_shows_it(
    alice: Client, form_values: dict[str, str]
) -> None:
    assert alice.post("/node-pools/new", form_values, headers=HTMX).status_code == 204
    pool = NodePool.objects.get(name="hpc")
    assert [(secret.name, secret.kind) for secret in PoolSecret.objects.filter(pool=pool)] == [
        ("ssh-key", "ssh_key")
    ]
    page = alice.get("/node-pools/hpc/settings").content.decode()
    assert "login.example.org" in page
    assert 'name="login_key"' in page
    assert form_values["login_key"].splitlines()[1] not in page


@pytest.mark.heavy
def test_form_stores_the_key_under_its_configured_secret_name(
    alice: Client, form_values: dict[str, str]
) -> None:
    named = {**form_values, "slurm_login": f"{form_values['slurm_login']}key: secret:hpc-key\n"}
    assert alice.post("/node-pools/new", named, headers=HTMX).status_code == 204
    assert PoolSecret.objects.get().name == "hpc-key"


def test_private_key_without_a_login_node_is_rejected(alice: Client, form_values: dict[str, str]) -> None:
    shown = errors(alice.post("/node-pools/new", {**form_values, "slurm_login": ""}, headers=HTMX))
    assert "Only a login node needs a key. Set the login node, or clear the key." in shown["login_key"]
    assert not NodePool.objects.filter(name="hpc").exists()
