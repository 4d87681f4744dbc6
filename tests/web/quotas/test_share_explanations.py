"""Tests for fair-share explanations on pages and over REST."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from projects.models import ApiToken, Workload
from projects.services.people import tokens
from scheduler.models import QueueStatus
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}

EXPLANATION = {
    "pool": "local",
    "queue_position": 1,
    "blockers": [{"reason": "WaitingForCapacity", "message": "Waits for free GPUs.", "numbers": {}}],
}


@pytest.fixture
def contended_pool(cast: Cast) -> Cast:
    """Create a node of two GPUs. Speech (weight 1) and vision (weight 2) request two GPUs each."""
    make.quota(cast.research, cast.pool, 2)
    make.quota(cast.vision, cast.pool, 0, weight_gpu=2)
    make.quota(cast.speech, cast.pool, 0, weight_gpu=1)
    make.node(cast.pool)
    make.workload(
        cast.vision, "waits", gpus=1, replicas=2, reason="WaitingForCapacity", explanation=EXPLANATION
    )
    make.workload(cast.speech, "waits-too", gpus=1, replicas=2)
    return cast


def get_share(cast: Cast, name: str, address: str) -> Any:
    return get(cast, name, f"quotas/{address}/share")


def get(cast: Cast, name: str, address: str) -> Any:
    _, secret = tokens.issue(
        actor=cast.people[name], name=f"t-{ApiToken.objects.count()}", scopes=["read"], expires_at=None
    )
    return Client().get(f"/api/v1/{address}", headers={"Authorization": f"Bearer {secret}"})


@pytest.mark.heavy
def test_explanation_sentences_match_the_numbers(contended_pool: Cast) -> None:
    answer = get_share(contended_pool, "alice", "projects/vision/local").json()
    department, project = (section for section in answer["trace"] if section["resource"] == "gpu")
    assert (department["name"], department["queue"], department["share"]) == ("research", "local", 2)
    assert (project["name"], project["queue"], project["total"], project["share"]) == (
        "vision",
        "research",
        2,
        1,
    )
    assert project["explanation"] == [
        "Total request (allocated and pending): 2 GPUs.",
        "vision has no quota.",
        ("Left to divide by weight: 2 GPUs. vision's portion of 66.7% is 1.333 GPUs, rounded down to 1 GPU."),
        (
            "Left after rounding: 1 GPU. "
            "vision's remainder is 0.333 GPUs, less than speech's (0.666 GPUs), so vision gets none."
        ),
        "Fair share: 1 GPU.",
    ]
    assert [(step["phase"], step["remaining"], step["granted"]) for step in project["rounds"]] == [
        ("over_quota", 2, 1), ("remainder", 1, 0),
    ]  # fmt: skip
    assert project["rounds"][0]["weighted_share"] == pytest.approx(2 / 3)
    assert sum(step["granted"] for step in project["rounds"]) == project["share"]


def test_page_and_api_show_the_same_sentences(contended_pool: Cast, sign_in: SignIn) -> None:
    traces = get_share(contended_pool, "alice", "projects/vision/local").json()["trace"]
    lines = [line for section in traces for line in section["explanation"]]
    headings = [
        f"{section['name']}: GPUs of {section['queue']}<"
        for section in traces
        if section["resource"] == "gpu"
    ]
    whole = sign_in("alice").get("/quotas/projects/vision/local/share").content.decode()
    inner = sign_in("alice").get("/quotas/projects/vision/local/share", headers=HTMX).content.decode()
    for text in (whole, inner):
        assert all(f">{line}</li>".replace("'", "&#x27;") in text for line in lines)
        assert headings
        assert all(heading in text for heading in headings)
    assert "<html" in whole
    assert "<html" not in inner


def test_explanation_for_a_member_names_only_their_own_project(contended_pool: Cast, sign_in: SignIn) -> None:
    answer = get_share(contended_pool, "dave", "projects/vision/local")
    assert {section["name"] for section in answer.json()["trace"]} == {"vision"}, (
        "no department and no other project"
    )
    assert "speech" not in answer.content.decode()
    assert "another project" in answer.content.decode()
    page = sign_in("dave").get("/quotas/projects/vision/local/share")
    assert "another project" in page.content.decode()
    assert "speech" not in page.content.decode()


def test_explanation_requires_access_to_the_queue(contended_pool: Cast, sign_in: SignIn) -> None:
    answers = {
        "projects/vision/local": {"bob": 200, "dave": 200, "erin": 200, "grace": 404, "frank": 404},
        "departments/research/local": {"alice": 200, "bob": 200, "dave": 404, "grace": 404, "frank": 404},
        "projects/vision/nowhere": {"alice": 404, "dave": 404},
    }  # fmt: skip
    for address, statuses in answers.items():
        for name, status in statuses.items():
            assert get_share(contended_pool, name, address).status_code == status, (name, address)
            assert sign_in(name).get(f"/quotas/{address}/share").status_code == status, (name, address)


@pytest.mark.heavy
def test_quota_page_and_pending_workload_link_to_the_explanation(
    contended_pool: Cast, sign_in: SignIn
) -> None:
    address = "/quotas/projects/vision/local/share"
    for name in ("alice", "dave"):
        assert f'href="{address}"' not in sign_in(name).get("/quotas?pool=local").content.decode()
    make.queue_status(contended_pool.vision, contended_pool.pool, share=2, allocated=0, requested=2)
    make.queue_status(contended_pool.research, contended_pool.pool, share=2, allocated=0, requested=2)
    for name, of_department in (("alice", True), ("dave", False)):
        client = sign_in(name)
        waits = Workload.objects.get(name="waits")
        for page in ("/quotas?pool=local", f"/workloads/{waits.pk}"):
            text = client.get(page).content.decode()
            assert f'href="{address}"' in text, (name, page)
            assert ('href="/quotas/departments/research/local/share"' in text) is of_department, (name, page)


@pytest.mark.heavy
def test_explain_endpoint_and_admin_site_show_the_same_sentences(contended_pool: Cast) -> None:
    row = QueueStatus.objects.create(
        pool=contended_pool.pool, project=contended_pool.vision, share=[0] * 3, allocated=[0] * 3,
        requested=[2000, 0, 0], usage=[0.0] * 3, at=timezone.now(),
    )  # fmt: skip
    trace = get_share(contended_pool, "alice", "projects/vision/local").json()["trace"]
    department, project = (section["explanation"] for section in trace if section["resource"] == "gpu")
    waits = Workload.objects.get(name="waits")
    why = get(contended_pool, "alice", f"workloads/{waits.pk}/explain").json()["queue"]
    assert (why["department"]["how"]["gpu"], why["project"]["how"]["gpu"]) == (department, project)
    user = contended_pool.alice.user
    user.is_staff = True
    user.save()
    admin_client = Client()
    admin_client.force_login(user)
    page = admin_client.get(reverse("admin:scheduler_queuestatus_change", args=[row.pk])).content.decode()
    for line in project:
        assert escape(line) in page


def test_explain_endpoint_hides_partly_visible_departments(contended_pool: Cast) -> None:
    waits = Workload.objects.get(name="waits")
    why = get(contended_pool, "dave", f"workloads/{waits.pk}/explain").json()["queue"]
    assert (why["department"]["how"], why["project"]["how"]["gpu"][-1]) == ({}, "Fair share: 1 GPU.")
