"""Tests for the filters of the queue page."""

from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.models import Project
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

ADDRESS = "/queue?pool=local"


def queue(project: Project, name: str, reason: str) -> None:
    explanation = {"pool": "local", "queue_position": 1, "ordering": [f"key of {name}"]}
    make.workload(project, name, phase="pending", reason=reason, explanation=explanation)


def names(client: Client, query: str = "") -> list[str]:
    context: Any = client.get(f"{ADDRESS}{query}").context
    return sorted(row.name for row, _, _ in context["rows"])


def test_queue_is_filtered_by_reason_and_project(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "limited", "ProjectLimit")
    queue(cast.vision, "large", "WaitingForCapacity")
    queue(cast.speech, "other", "ProjectLimit")
    client = sign_in("alice")
    assert names(client) == ["large", "limited", "other"]
    assert names(client, "&reason=ProjectLimit") == ["limited", "other"]
    assert names(client, "&reason=ProjectLimit&project=speech") == ["other"]
    context: Any = client.get(f"{ADDRESS}&reason=ProjectLimit").context
    assert context["reasons"] == [("ProjectLimit", 2), ("WaitingForCapacity", 1)]
    assert context["projects"] == ["speech", "vision"]
    assert "No pending workloads match" in client.get(f"{ADDRESS}&reason=Backoff").content.decode()


def test_counts_include_only_visible_workloads(cast: Cast, sign_in: SignIn) -> None:
    queue(cast.vision, "mine", "ProjectLimit")
    queue(cast.ads, "theirs", "ProjectLimit")
    page = sign_in("dave").get(ADDRESS)
    assert page.context["reasons"] == [("ProjectLimit", 1)]
    assert "2 workloads in the queue" in page.content.decode()
    assert "1 is visible to you" in page.content.decode()


def test_statement_count_does_not_depend_on_the_number_of_rows(cast: Cast, sign_in: SignIn) -> None:
    client, counts = sign_in("alice"), []
    for number in (1, 30):
        for place in range(number):
            queue(cast.vision, f"w-{number}-{place}", "ProjectLimit")
        with CaptureQueriesContext(connection) as statements:
            assert client.get(ADDRESS).status_code == 200
        counts.append(len(statements))
    assert counts[0] == counts[1]
