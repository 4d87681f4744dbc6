"""Tests for the filter of the workload list by the user who submitted a workload."""

import re

from django.contrib.auth.models import User
from django.test import Client

from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def suggested(client: Client, text: str) -> list[str]:
    page = client.get("/workloads/submitters", {"user": text}).content.decode()
    return re.findall(r'<option value="([^"]+)"', page)


def test_users_with_matching_names_are_suggested(cast: Cast, sign_in: SignIn) -> None:
    assert suggested(sign_in("dave"), "ar") == ["carol"]
    assert suggested(sign_in("alice"), "ra") == ["frank", "grace"]
    assert suggested(sign_in("dave"), "ra") == [], "dave sees neither frank nor grace"
    make.workload(cast.vision, "shared", by=cast.grace.user)
    assert suggested(sign_in("dave"), "ra") == ["grace"], "grace submitted a workload that dave sees"


def test_own_name_is_the_first_suggestion(cast: Cast, sign_in: SignIn) -> None:
    for text in ("", "me", "da"):
        assert suggested(sign_in("dave"), text)[0] == "dave"
    assert 'value="dave" label="Me"' in sign_in("dave").get("/workloads/submitters").content.decode()


def test_only_a_few_of_many_users_are_suggested(cast: Cast, sign_in: SignIn) -> None:
    User.objects.bulk_create(User(username=f"user-{number:03}") for number in range(500))
    assert suggested(sign_in("alice"), "user-")[:2] == ["user-000", "user-001"]
    assert len(suggested(sign_in("alice"), "")) <= 21
    assert "user-000" not in sign_in("alice").get("/workloads").content.decode()


def test_list_shows_the_workloads_of_the_chosen_user(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "hers", by=cast.carol.user)
    make.workload(cast.vision, "his", by=cast.dave.user)
    client = sign_in("dave")
    for query, name, shown in (("user=carol", "carol", "hers"), ("mine=1", "dave", "his")):
        answer = client.get(f"/workloads?{query}")
        assert [row.name for row in answer.context["slice"].rows] == [shown]
        assert f'name="user" value="{name}"' in answer.content.decode()
    page = client.get("/workloads?user=carl").content.decode()
    assert "Did you mean <code>carol</code>?" in page
