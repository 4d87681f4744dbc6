"""Tests for the permissions of each role."""

import pytest
from django.contrib.auth.models import User

from berth.core.errors import Forbidden
from projects import selectors
from projects.access import Action, may, visible_projects, visible_projects_by_user
from projects.actor import Actor
from projects.models import Project
from projects.services import tenants, workloads
from projects.services.people import tokens
from tests.cast import Cast, training

PLATFORM = {"alice"}
DEPARTMENT = PLATFORM | {"bob"}
PROJECT = DEPARTMENT | {"carol"}
MEMBERS = PROJECT | {"dave"}
READERS = MEMBERS | {"erin"}


def users_allowed(cast: Cast, action: Action, obj: object = None) -> set[str]:
    return {name for name, actor in cast.people.items() if may(actor, action, obj)}


def test_revoked_role_applies_until_the_end_of_the_request(cast: Cast) -> None:
    actor = Actor.for_user(cast.dave.user)
    assert may(actor, Action.SUBMIT, cast.vision)
    cast.dave.user.memberships.all().delete()
    assert may(actor, Action.SUBMIT, cast.vision)
    assert not may(Actor.for_user(cast.dave.user), Action.SUBMIT, cast.vision)


def test_action_is_allowed_only_for_the_expected_roles(cast: Cast) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    assert users_allowed(cast, Action.ADMINISTER) == PLATFORM
    assert users_allowed(cast, Action.EDIT, cast.research) == DEPARTMENT
    assert users_allowed(cast, Action.EDIT, cast.vision) == DEPARTMENT
    assert users_allowed(cast, Action.SET_QUOTA, cast.vision) == DEPARTMENT
    assert users_allowed(cast, Action.GRANT, cast.vision) == PROJECT
    assert users_allowed(cast, Action.SET_SECRETS, cast.vision) == PROJECT
    assert users_allowed(cast, Action.SUBMIT, cast.vision) == MEMBERS
    assert users_allowed(cast, Action.OPERATE, workload) == MEMBERS
    assert users_allowed(cast, Action.VIEW, workload) == READERS
    assert users_allowed(cast, Action.EDIT, cast.pool) == PLATFORM
    assert users_allowed(cast, Action.SET_QUOTA, cast.product) == PLATFORM
    assert users_allowed(cast, Action.SUBMIT, cast.ads) == PLATFORM | {"grace"}


def test_read_only_token_cannot_submit(cast: Cast) -> None:
    reader = Actor.for_user(cast.alice.user, frozenset({"read"}))
    assert may(reader, Action.VIEW, cast.vision)
    with pytest.raises(Forbidden, match="write"):
        workloads.submit(actor=reader, project=cast.vision, document=training())


def test_department_admin_cannot_raise_the_reclaim_min_runtime(cast: Cast) -> None:
    max_runtime = {"reclaim_min_runtime": 2**31 - 1}
    with pytest.raises(Forbidden):
        tenants.edit_department(actor=cast.bob, department=cast.research, changes=max_runtime)
    with pytest.raises(Forbidden):
        tenants.edit_project(actor=cast.bob, project=cast.vision, changes=max_runtime)
    with pytest.raises(Forbidden):
        tenants.create_project(actor=cast.bob, department=cast.research, name="new", **max_runtime)
    same = {"title": "Eyes", "reclaim_min_runtime": cast.vision.reclaim_min_runtime}
    assert tenants.edit_project(actor=cast.bob, project=cast.vision, changes=same).title == "Eyes"
    edited = tenants.edit_project(actor=cast.alice, project=cast.vision, changes={"reclaim_min_runtime": 60})
    assert edited.reclaim_min_runtime == 60


def test_only_a_platform_admin_with_all_scopes_can_issue_tokens_for_other_users(cast: Cast) -> None:
    dave = cast.dave.user
    narrow = Actor.for_user(cast.alice.user, frozenset({"read", "write"}))
    for actor in (narrow, cast.bob):
        with pytest.raises(Forbidden, match="only issue tokens for yourself"):
            tokens.issue(actor=actor, name="ci", scopes=["read"], expires_at=None, user=dave)
    token, _ = tokens.issue(actor=cast.alice, name="ci", scopes=["read"], expires_at=None, user=dave)
    assert token.user == dave


def test_inactive_user_has_no_permissions(cast: Cast) -> None:
    cast.alice.user.is_active = False
    cast.alice.user.save()
    assert not may(cast.alice, Action.ADMINISTER)
    assert not selectors.projects(cast.alice).exists()


def test_bulk_lookup_of_visible_projects_equals_the_lookup_for_each_user(cast: Cast) -> None:
    users = [actor.user for actor in cast.people.values() if actor.user is not None]
    users[-1].is_active = False
    users.append(User(pk=9_999, username="root", is_superuser=True))
    together = visible_projects_by_user(users, list(Project.objects.all()))
    for user in users:
        alone = visible_projects(Actor.for_user(user)).values_list("pk", flat=True)
        assert together.get(user.pk, frozenset()) == frozenset(alone), user.username
    assert len({len(projects) for projects in together.values()}) >= 3, "the roles differ"
