"""Tests for the user list on the Access page, and for users on the admin site."""

import re
from html import unescape

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from projects.models import Membership
from tests.cast import Cast
from tests.web.conftest import SignIn

admin.autodiscover()


def path(cast: Cast, name: str = "dave", step: str = "deactivate") -> str:
    return f"/access/users/{cast.people[name].user.pk}/{step}"


def test_platform_admin_deactivates_and_activates_a_user(cast: Cast, sign_in: SignIn) -> None:
    admin, dave = sign_in("alice"), sign_in("dave")
    access = admin.get("/access").content.decode()
    assert f'href="{path(cast)}"' in access
    assert access.count(">Users and roles<") == 2, "the tab and the hidden caption, but no heading"
    question = admin.get(path(cast)).content.decode()
    assert "Deactivate dave?" in question and "Their workloads keep running" in question
    assert admin.post(path(cast)).status_code == 302
    page = admin.get("/access").content.decode()
    assert "User dave deactivated." in page and f'href="{path(cast, step="activate")}"' in page
    assert dave.get("/workloads").status_code == 302
    assert admin.post(path(cast, step="activate")).status_code == 302
    cast.dave.user.refresh_from_db()
    assert cast.dave.user.is_active


def people(client: Client, query: str = "") -> list[tuple[str, str, str]]:
    rows = [row for row, _ in client.get(f"/access{query}").context["members"]]
    return [(row.user.username, row.role_title, row.scope_title) for row in rows]


def test_one_table_lists_all_users_with_their_roles(cast: Cast, sign_in: SignIn) -> None:
    User.objects.filter(pk=cast.grace.user.pk).update(is_superuser=True)
    admin = sign_in("alice")
    rows = people(admin)
    assert ("alice", "Platform admin", "The entire platform") in rows
    assert ("dave", "Member", "research / vision") in rows
    assert ("frank", "No role", "") in rows
    of_grace = [row[1:] for row in rows if row[0] == "grace"]
    assert of_grace[0] == ("Superuser", "The entire platform")
    page = admin.get("/access").content.decode()
    assert page.count("<table") == 1 and "Superusers have full access" in page
    assert f'href="{path(cast, "grace")}"' in page and page.count(path(cast, "grace")) == 2
    assert "/access/grant?user=frank" in page
    assert 'value="frank"' in admin.get("/access/grant?user=frank").content.decode()


def test_change_role_form_contains_the_current_user_scope_and_role(cast: Cast, sign_in: SignIn) -> None:
    admin = sign_in("alice")
    page = admin.get("/access").content.decode()
    link = re.search(r'href="(/access/grant\?user=dave&[^"]+)"', page)
    assert link is not None
    form = admin.get(unescape(link[1]), headers={"HX-Request": "true"}).content.decode()
    assert "Change role</button>" in form and 'value="dave"' in form
    assert 'value="project:vision" selected' in form and 'value="member" selected' in form
    values = {"username": "dave", "scope": "project:vision", "role": "viewer"}
    assert admin.post("/access/grant", values, headers={"HX-Request": "true"}).status_code == 204
    assert Membership.objects.get(user=cast.dave.user).role == "viewer"
    assert "?user=dave" not in sign_in("dave").get("/access").content.decode()


def test_user_list_is_filtered_by_role(cast: Cast, sign_in: SignIn) -> None:
    admin = sign_in("alice")
    assert {row[0] for row in people(admin, "?people-role=none")} == {"frank"}
    assert {row[1] for row in people(admin, "?people-role=member")} == {"Member"}
    assert people(admin, "?people-role=member&people-search=research") == [
        ("dave", "Member", "research / vision")
    ]
    assert people(admin, "?people-role=odd") == people(admin)
    carol = sign_in("carol")
    assert "frank" not in {row[0] for row in people(carol)}
    page = carol.get("/access").content.decode()
    assert "Superuser" not in page and "Last sign-in" not in page


def test_first_visible_row_of_a_user_has_the_deactivate_button(cast: Cast, sign_in: SignIn) -> None:
    User.objects.filter(pk=cast.dave.user.pk).update(is_superuser=True)
    admin = sign_in("alice")
    assert [row[1] for row in people(admin) if row[0] == "dave"] == ["Superuser", "Member"]
    for query in ("", "?people-role=member", "?people-search=vision"):
        assert admin.get(f"/access{query}").content.decode().count(f' href="{path(cast)}"') == 1


@pytest.mark.heavy
def test_user_list_can_be_searched_and_exported(cast: Cast, sign_in: SignIn) -> None:
    admin = sign_in("alice")
    page = admin.get("/access?people-search=frank").content.decode()
    assert path(cast, "frank") in page and path(cast) not in page
    answer = admin.get("/access?people-search=frank&people-format=csv")
    lines = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "User,Email,Role,Scope,Since,State,Created,Last sign-in"
    assert len(lines) == 2 and lines[1].startswith("frank,frank@example.org,No role,,,active,")


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["bob", "carol", "dave"])
def test_only_platform_admins_can_deactivate_accounts(cast: Cast, sign_in: SignIn, name: str) -> None:
    client = sign_in(name)
    assert "/deactivate" not in client.get("/access").content.decode()
    assert client.post(path(cast)).status_code == 403
    cast.dave.user.refresh_from_db()
    assert cast.dave.user.is_active


def test_admin_cannot_deactivate_their_own_account(cast: Cast, sign_in: SignIn) -> None:
    admin = sign_in("alice")
    assert path(cast, "alice") not in admin.get("/access").content.decode()
    assert admin.post(path(cast, "alice")).status_code == 409


def test_last_platform_admin_cannot_be_removed_in_the_admin_site(admin_client: Client, cast: Cast) -> None:
    listing = reverse("admin:auth_user_changelist")
    both = {"_selected_action": [cast.erin.user.pk, cast.alice.user.pk]}
    page = admin_client.post(
        listing, {"action": "delete_selected", "post": "yes", **both}, follow=True
    ).content.decode()
    assert "You cannot delete your own account." in page
    assert User.objects.filter(username__in=("alice", "erin")).count() == 2, "all or none are deleted"

    Membership.objects.filter(user=cast.alice.user).delete()
    User.objects.filter(pk=cast.alice.user.pk).update(is_superuser=True)
    values = {"username": "alice", "first_name": "", "last_name": "", "email": "", "is_active": "on"}
    address = reverse("admin:auth_user_change", args=[cast.alice.user.pk])
    page = admin_client.post(address, {**values, "is_staff": "on"}, follow=True).content.decode()
    assert "alice is the last active platform admin." in page
    assert User.objects.get(username="alice").is_superuser
