"""Tests for departments, projects and members over REST."""

import pytest

from tests.api.conftest import Caller
from tests.cast import Cast


def test_platform_admin_creates_a_department(alice: Caller) -> None:
    made = alice.post("departments", {"name": "physics", "title": "Physics", "rank": 3})
    assert made.status_code == 201
    assert made["Location"] == "/api/v1/departments/physics"
    assert made.json()["rank"] == 3
    assert alice.get("departments/physics").json() == made.json()


def test_patch_changes_only_the_given_fields(alice: Caller) -> None:
    changed = alice("PATCH", "departments/research", {"reclaim_min_runtime": 60})
    assert changed.json()["reclaim_min_runtime"] == 60
    again = alice("PATCH", "departments/research", {"title": "R&D"})
    assert (again.json()["title"], again.json()["reclaim_min_runtime"]) == ("R&D", 60)
    assert (
        alice("PATCH", "departments/research", {"reclaim_min_runtime": None}).json()["reclaim_min_runtime"]
        is None
    )


def test_department_admin_cannot_change_the_departments_rank(bob: Caller) -> None:
    assert bob("PATCH", "departments/research", {"rank": 5}).status_code == 403
    assert bob("PATCH", "departments/research", {"title": "Ours"}).status_code == 200


def test_department_with_projects_cannot_be_deleted(alice: Caller) -> None:
    assert alice("DELETE", "departments/research").status_code == 409
    alice.post("departments", {"name": "empty"})
    assert alice("DELETE", "departments/empty").status_code == 204
    assert alice.get("departments/empty").status_code == 404


def test_department_admin_creates_projects_only_in_their_department(bob: Caller) -> None:
    made = bob.post("projects", {"name": "audio", "department": "research"})
    assert (made.status_code, made.json()["department"]) == (201, "research")
    rejected = bob.post("projects", {"name": "audio2", "department": "product"})
    assert rejected.status_code == 422
    assert rejected.json()["errors"][0]["path"] == "department"


@pytest.mark.heavy
def test_projects_are_filtered_by_department(alice: Caller, cast: Cast) -> None:
    projects = alice.get("projects", department="product").json()["items"]
    assert [project["name"] for project in projects] == ["ads", "search"]


def test_duplicate_department_name_is_rejected(alice: Caller) -> None:
    assert alice.post("departments", {"name": "research"}).status_code in (409, 422)
    assert len(alice.get("departments").json()["items"]) == 2


def test_admins_list_only_users_in_their_scope_and_add_other_users_by_exact_name(
    alice: Caller, bob: Caller, carol: Caller, cast: Cast
) -> None:
    def names(caller: Caller, **query: str) -> str:
        return " ".join(sorted(user["username"] for user in caller.get("users", **query).json()["items"]))

    assert names(alice) == "alice bob carol dave erin frank grace"
    assert names(bob) == "bob carol dave erin"
    assert names(carol) == "carol dave erin"
    for search in ("fra", "frank", "grace@example.org", "example.org"):
        assert {"frank", "grace"}.isdisjoint(names(carol, search=search).split())
    role = {"role": "viewer", "project": "vision"}
    assert carol.post("members", {"user": "fran", **role}).status_code == 422
    assert "frank" not in carol.post("members", {"user": "fran", **role}).content.decode()
    assert carol.post("members", {"user": "frank", **role}).status_code == 201
    assert names(carol) == "carol dave erin frank"
