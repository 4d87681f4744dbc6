"""Tests for the roles in the dialogs of the access page."""

from django.contrib.auth.models import User

from projects.models import Membership
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
ACCOUNT = {"username": "ivan", "email": "", "password": "harbour-lights-42"}


def test_grant_dialog_describes_roles_and_names_them_in_sentence_case(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("alice").get("/access/grant", headers=HTMX).content.decode()
    assert ">Platform admin</option>" in text and "Platform Admin" not in text
    assert "Permissions of each role" in text
    assert "Also submits workloads, stops their own workloads and saves templates" in text


def test_user_is_created_with_a_role_in_one_step(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    answer = alice.post(
        "/access/users/new", {**ACCOUNT, "scope": "project:vision", "role": "member"}, headers=HTMX
    )
    assert answer.status_code == 204
    assert Membership.objects.get(user__username="ivan", project=cast.vision).role == "member"


def test_user_is_not_created_if_the_role_does_not_fit_the_scope(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    for scope, role in (("project:vision", "department_admin"), ("project:vision", ""), ("", "member")):
        answer = alice.post("/access/users/new", {**ACCOUNT, "scope": scope, "role": role}, headers=HTMX)
        assert answer.status_code == 422
        assert not User.objects.filter(username="ivan").exists()
