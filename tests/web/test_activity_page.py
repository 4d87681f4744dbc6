"""Tests for the activity page."""

from collections.abc import Callable

from django.test import Client

from projects.services import quotas
from projects.services.people import members
from projects.services.quotas import budgets
from tests.cast import Cast

SignIn = Callable[[str], Client]


def test_activity_shows_only_changed_fields(cast: Cast, sign_in: SignIn) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 2})
    quotas.set_quota(
        actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 4, "limit": {"gpu": 8}}
    )
    (_, second), (_, first) = sign_in("carol").get("/activity").context["lines"]
    assert ("GPUs", "", "2") in first
    assert second == [("GPUs", "2", "4"), ("GPU limit", "", "8")]


def test_activity_and_other_pages_use_the_same_role_and_unit_names(cast: Cast, sign_in: SignIn) -> None:
    members.grant(actor=cast.alice, user=cast.dave.user, role="project_admin", scope=cast.vision)
    values = {"gpu_hours": 4500, "warn_at": [80, 100]}
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values=values)
    (budget, limits), (role, granted) = sign_in("carol").get("/activity").context["lines"][:2]
    assert role.object_name == "dave: project admin of vision"
    assert ("Role", "Member", "Project admin") in granted
    assert budget.object_name == "vision: 4,500 GPU-hours a month"
    assert {("GPU-hours", "", "4500"), ("Alerts at (%)", "", "80, 100")} <= set(limits)
