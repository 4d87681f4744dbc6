"""Tests for deactivating and activating users over REST."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client

from berth.core.errors import Conflict, Forbidden
from projects.models import ApiToken, Audit, Membership
from projects.services.people import accounts, members
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast


def test_deactivated_user_loses_sessions_and_tokens_but_not_workloads_or_roles(
    cast: Cast, alice: Caller, dave: Caller
) -> None:
    train = make.workload(cast.vision, "train", phase="running", by=cast.dave.user)
    browser, other = Client(), Client()
    browser.force_login(cast.dave.user)
    other.force_login(cast.erin.user)

    answer = alice.post("users/dave/deactivate")
    assert answer.status_code == 200, answer.content
    result = answer.json()
    assert (result["active"], result["revoked_tokens"], result["ended_sessions"]) == (False, 1, 1)
    assert (result["live_workloads"], [role["role"] for role in result["roles"]]) == (1, ["member"])
    assert dave.get("whoami").status_code == 401
    assert browser.get("/workloads").status_code == 302
    assert other.get("/workloads").status_code == 200
    assert Session.objects.count() == 1
    wrong = Client().post("/login", {"username": "dave", "password": "correct horse battery"})
    assert wrong.status_code != 302
    sign_in = {"username": "dave", "password": "correct horse battery"}
    assert Caller().post("login", sign_in).status_code == 401
    train.refresh_from_db()
    assert (train.phase, train.submitted_by) == ("running", cast.dave.user)
    assert [row["username"] for row in alice.get("users", active="false").json()["items"]] == ["dave"]

    restored = alice.post("users/dave/activate").json()
    assert (restored["active"], [role["role"] for role in restored["roles"]]) == (True, ["member"])
    assert dave.get("whoami").status_code == 401, "revoked tokens stay revoked"
    assert browser.get("/workloads").status_code == 302, "ended sessions stay ended"
    assert Caller().post("login", sign_in).status_code == 200
    rows = Audit.objects.filter(object_type="user", object_name="dave").order_by("pk")
    assert [(row.actor, row.action, row.after) for row in rows] == [
        ("alice", "deactivate", {"revoked_tokens": 1, "ended_sessions": 1}),
        ("alice", "activate", None),
    ]


@pytest.mark.heavy
def test_repeated_change_has_no_effect_and_creates_no_audit_entry(cast: Cast, alice: Caller) -> None:
    for step in ("activate", "deactivate", "deactivate"):
        assert alice.post(f"users/dave/{step}").status_code == 200
    assert list(Audit.objects.filter(object_type="user").values_list("action", flat=True)) == ["deactivate"]


def test_users_cannot_deactivate_themselves_or_the_last_platform_admin(cast: Cast, alice: Caller) -> None:
    own = alice.post("users/alice/deactivate")
    assert own.status_code == 409
    assert own.json()["detail"] == "You cannot deactivate your own account. Ask another platform admin."
    with pytest.raises(Conflict, match="alice is the last active platform admin"):
        accounts.deactivate(actor=cast.alice.system("test"), user=cast.alice.user)
    Membership.objects.create(user=cast.frank.user, role="platform_admin")
    assert accounts.deactivate(actor=cast.frank, user=cast.alice.user).user.is_active is False


def test_last_platform_admins_role_cannot_be_revoked(cast: Cast, alice: Caller) -> None:
    role = Membership.objects.get(user=cast.alice.user, role="platform_admin")
    rejected = alice("DELETE", f"members/{role.pk}")
    assert rejected.status_code == 409
    assert rejected.json()["detail"] == (
        "alice is the last active platform admin. Make another user a platform admin first."
    )
    Membership.objects.create(user=cast.frank.user, role="platform_admin")
    assert alice("DELETE", f"members/{role.pk}").status_code == 204
    assert not Membership.objects.filter(pk=role.pk).exists()


def revoke(*, actor: Any, user: User) -> None:
    members.revoke(actor=actor, membership=Membership.objects.get(user=user, role="platform_admin"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", [accounts.deactivate, revoke])
def test_two_admins_cannot_remove_each_other_at_the_same_time(act: Callable[..., object]) -> None:
    from tests.cast import make_cast

    cast = make_cast()
    Membership.objects.create(user=cast.frank.user, role="platform_admin")
    start = threading.Barrier(2)
    rejections = []

    def remove(actor: object, user: User) -> None:
        start.wait(120)
        try:
            act(actor=actor, user=user)
        except (Conflict, Forbidden) as error:  # the loser of the race gets Forbidden
            rejections.append(error)
        finally:
            connection.close()

    pairs = ((cast.alice, cast.frank.user), (cast.frank, cast.alice.user))
    threads = [threading.Thread(target=remove, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    admins = Membership.objects.filter(role="platform_admin", user__is_active=True)
    assert admins.count() == 1
    assert len(rejections) == 1


def test_admins_see_a_users_roles_and_workloads_only_in_their_own_scopes(
    cast: Cast, alice: Caller, carol: Caller
) -> None:
    Membership.objects.create(user=cast.dave.user, project=cast.ads, role="viewer")
    make.workload(cast.ads, "hidden", by=cast.dave.user)
    everything, visible = alice.get("users/dave").json(), carol.get("users/dave").json()
    assert [role["project"] for role in everything["roles"]] == ["vision", "ads"]
    assert [role["project"] for role in visible["roles"]] == ["vision"]
    assert (everything["live_workloads"], visible["live_workloads"]) == (1, 0)
    unknown = alice.get("users/davee")
    assert unknown.status_code == 404
    assert unknown.json()["detail"] == "There is no user named 'davee'. Did you mean `dave`?"


def test_deactivation_requires_the_admin_scope(cast: Cast, caller: Callable[..., Caller]) -> None:
    assert caller("alice", "read", "write").post("users/dave/deactivate").status_code == 403
    assert ApiToken.objects.filter(user=cast.dave.user, revoked_at__isnull=False).count() == 0
