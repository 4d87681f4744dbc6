"""Tests for the roles in the dialogs of the access page."""

import re

from django.contrib.auth.models import User

from projects.models import Membership, Role
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
ACCOUNT = {"username": "ivan", "email": "", "password": "harbour-lights-42"}


def test_grant_dialog_describes_roles_and_names_them_in_sentence_case(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("alice").get("/access/grant", headers=HTMX).content.decode()
    assert ">Platform admin</option>" in text and "Platform Admin" not in text
    assert "Permissions of each role" in text
    assert "Also submits workloads, stops their own workloads and saves templates" in text


def test_role_fields_offer_only_the_roles_of_the_scope(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")

    def offered(scope: str, role: str = "") -> list[tuple[str, str]]:
        query = {"scope": scope, "role": role, "placeholder": "Choose a role"}
        text = alice.get("/access/roles", query).content.decode()
        return re.findall(r'value="\w*"( selected)?>([^<]+)<', text)

    assert [title for _, title in offered("project:vision")] == [
        "Choose a role", "Project admin", "Member", "Viewer",
    ]  # fmt: skip
    assert [title for _, title in offered("department:research")][1:] == ["Department admin", "Viewer"]
    assert offered("platform") == [("", "Platform admin")]
    assert (" selected", "Viewer") in offered("department:research", "viewer"), "the chosen role is kept"
    assert len(offered("")) == 1 + len(Role)
    dialog = alice.get("/access/grant?scope=project:vision", headers=HTMX).content.decode()
    assert 'value="member">Member<' in dialog and 'value="platform_admin"' not in dialog


def test_rejected_grant_suggests_roles_and_usernames_as_the_form_shows_them(
    cast: Cast, sign_in: SignIn
) -> None:
    values = {"username": "davee", "scope": "project:vision", "role": "platform_admin"}
    alice = sign_in("alice")
    answer = alice.post("/access/grant", values, headers=HTMX)
    assert (answer.status_code, answer.context["form"].errors["role"]) == (
        422, ["Platform admin is not available for a project. Choose Project admin, Member or Viewer."],
    )  # fmt: skip
    answer = alice.post("/access/grant", values | {"role": "member"}, headers=HTMX)
    assert answer.context["form"].errors == {"username": ["No user has this name. Did you mean dave?"]}


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
