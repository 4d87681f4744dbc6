"""Tests for the pages of joined machines and join tokens."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from pools import services
from pools.joining import secrets
from pools.models import JoinToken, Machine, NodePool
from pools.services.joining import MachineReport
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed

PAGE = "/node-pools/metal/machines"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def metal_pool(cast: Cast) -> NodePool:
    return services.create_pool(
        actor=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384,
    )  # fmt: skip


@pytest.fixture
def alice(sign_in: SignIn) -> Client:
    return sign_in("alice")


@pytest.mark.heavy
def test_static_pool_page_explains_that_machines_become_nodes(metal_pool: NodePool, alice: Client) -> None:
    text = alice.get("/node-pools/metal").content.decode()
    assert "Each machine that joins becomes a node." in text
    assert "no machine has joined" in text and "starts a node when a workload needs one" not in text


def join_machine(cast: Cast, metal_pool: NodePool, name: str = "box-1") -> Machine:
    now = timezone.now()
    _, token = services.issue_join_token(
        actor=cast.alice, pool=metal_pool, lifetime=timedelta(hours=1), at=now
    )
    measured = MachineReport(name, "10.1.0.5", 16000, 65536, ("GPU-a", "GPU-b"), "L4")
    services.join(pool_name="metal", token=token, measured=measured, at=now)
    return Machine.objects.get(name=name)


def test_join_token_is_shown_once_with_its_command(alice: Client, metal_pool: NodePool) -> None:
    answer = alice.post(f"{PAGE}/token", {"comment": "rack 7", "machines": "16", "lasts": "3600"})
    match = re.search(r'<code id="secret">(join_\S+)</code>', answer.content.decode())
    assert match
    token = JoinToken.objects.get()
    assert (token.digest, token.comment) == (secrets.secret_digest(match[1]), "rack 7")
    assert "install --url http://testserver --pool metal" in answer.content.decode()
    page = alice.get(PAGE).content.decode()
    assert match[1] not in page
    assert token.prefix in page
    assert "rack 7" in page
    assert "of 16</span>" in page


def test_machine_can_be_removed_from_its_page(alice: Client, cast: Cast, metal_pool: NodePool) -> None:
    join_machine(cast, metal_pool)
    page = alice.get(PAGE).content.decode()
    assert "box-1" in page
    assert "Free" in page
    assert "Remove box-1?" in alice.get(f"{PAGE}/box-1/remove", headers=HTMX).content.decode()
    assert alice.post(f"{PAGE}/box-1/remove", {"reason": "sold"}, headers=HTMX).status_code == 204
    assert Machine.objects.get().departed_at is not None
    assert alice.get(f"{PAGE}/box-1/remove").status_code == 404


@pytest.mark.heavy
def test_join_token_can_be_revoked(alice: Client, cast: Cast, metal_pool: NodePool) -> None:
    lifetime = timedelta(hours=1)
    token, _ = services.issue_join_token(
        actor=cast.alice, pool=metal_pool, lifetime=lifetime, at=timezone.now()
    )
    assert "Revoke join token" in alice.get(f"{PAGE}/token/{token.pk}").content.decode()
    assert alice.post(f"{PAGE}/token/{token.pk}", headers=HTMX).status_code == 204
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert alice.get(f"{PAGE}/token/{token.pk}").status_code == 404


def test_machine_pages_are_limited_to_platform_admins(
    sign_in: SignIn, alice: Client, cast: Cast, metal_pool: NodePool
) -> None:
    join_machine(cast, metal_pool)
    token = JoinToken.objects.get()
    for path in ("", "/token", f"/token/{token.pk}", "/box-1/remove"):
        for name in ("bob", "dave"):
            assert sign_in(name).get(PAGE + path).status_code == 403
            assert sign_in(name).post(PAGE + path).status_code in (403, 405)
    assert Machine.objects.get().removed_at is None
    assert alice.get("/node-pools/local/machines").status_code == 404, "its nodes do not join"
    assert PAGE not in sign_in("dave").get("/node-pools/metal").content.decode()
    assert PAGE in alice.get("/node-pools/metal").content.decode()


@pytest.mark.heavy
def test_admin_site_removes_machines_and_revokes_tokens_without_showing_digests(
    alice: Client, cast: Cast, metal_pool: NodePool
) -> None:
    User.objects.filter(username="alice").update(is_staff=True)
    machine = join_machine(cast, metal_pool)
    lifetime = timedelta(hours=1)
    token, _ = services.issue_join_token(
        actor=cast.alice, pool=metal_pool, lifetime=lifetime, at=timezone.now()
    )
    page = alice.get(f"/admin/pools/jointoken/{token.pk}/change/").content.decode()
    assert token.prefix in page
    assert token.digest not in page
    for model, row, step in (("machine", machine, "remove"), ("jointoken", token, "revoke")):
        chosen = {"action": step, "_selected_action": [str(row.pk)]}
        assert alice.post(f"/admin/pools/{model}/", chosen).status_code == 302
    machine.refresh_from_db()
    token.refresh_from_db()
    assert machine.departed_at is not None
    assert token.revoked_at is not None
    form = {"action": "download", "_selected_action": [str(token.pk)]}
    export = alice.post("/admin/pools/jointoken/", form)
    assert token.digest not in streamed(export).decode()
