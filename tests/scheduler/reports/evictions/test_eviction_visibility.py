"""Tests that each project in an eviction sees only the permitted details of the other project."""

import json
import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import escape

from berth.server.web.numbers import thousandths
from projects.models import Membership
from projects.services.people import tokens
from projects.services.workloads.prediction import dry_run
from scheduler.models import Eviction
from scheduler.reports.evictions.rendering import capitalize_rule
from tests.cast import Person, training
from tests.scheduler.stage import Stage

SECRET, OTHER = "secret-bid", "hidden-run"
VIEW_NAMES = ("rest", "csv", "page", "workload page", "list page")


@dataclass
class Case:
    """An eviction in which ads (department product) reclaimed over-quota GPUs from vision (research)."""

    stage: Stage
    row: Eviction
    people: dict[str, Person]


@pytest.fixture
def borrowing_stage(stage: Stage) -> Stage:
    """Allocate all four GPUs to vision and delete vision's quota, so that ads can reclaim them."""
    cast = stage.cast
    stage.quota(cast.product, 4)
    stage.quota(cast.ads, 4)
    cast.research.quotas.update(gpu_milli=0)
    cast.vision.quotas.update(gpu_milli=0)
    stage.submit(OTHER, roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    stage.tick(2, seconds=10)
    return stage


@pytest.fixture
def case(borrowing_stage: Stage) -> Case:
    stage, cast = borrowing_stage, borrowing_stage.cast
    stage.submit(SECRET, cast.ads, roles=[{"name": "rank", "replicas": 2, "gpu": 1}])
    stage.tick(2, seconds=10)
    return Case(
        stage, Eviction.objects.get(), {**cast.people, "heidi": create_user_of_both_projects(stage, "viewer")}
    )


def create_user_of_both_projects(stage: Stage, role: str) -> Person:
    both = User.objects.create_user("heidi", "heidi@example.org", "correct horse battery")
    for project in (stage.cast.vision, stage.cast.ads):
        Membership.objects.create(user=both, project=project, role=role)
    return Person.for_user(both)


def token_headers(person: Person) -> dict[str, str]:
    name = f"t{person.user.api_tokens.count()}"
    _, secret = tokens.issue(actor=person, name=name, scopes=["read"], expires_at=None)
    return {"Authorization": f"Bearer {secret}"}


def content(case: Case, name: str, view: str) -> str:
    person = case.people[name]
    client = Client()
    if view in ("rest", "csv"):
        path = f"/api/v1/evictions/{case.row.pk}" if view == "rest" else "/api/v1/evictions?format=csv"
        answer = client.get(path, headers=token_headers(person))
    else:
        client.force_login(person.user)
        own = case.row.workload_id if name != "grace" else case.row.preemptor_id
        paths = {"page": f"/evictions/{case.row.pk}", "list page": "/evictions"}
        answer = client.get(paths.get(view, f"/workloads/{own}"))
    assert answer.status_code == 200, (name, view, answer.status_code)
    return b"".join(answer).decode() if answer.streaming else answer.content.decode()


def test_victim_sees_project_and_size_of_the_preemptor(case: Case) -> None:
    for name, view in product(("bob", "carol", "dave", "erin"), VIEW_NAMES):
        text = content(case, name, view)
        assert "a 2-GPU workload in project ads" in text, (name, view)
        assert OTHER in text, (name, view)
        assert SECRET not in text, (name, view)
        assert str(case.row.preemptor_id) not in text, (name, view)


def test_preemptor_sees_project_and_size_of_the_victim(case: Case) -> None:
    for view in VIEW_NAMES:
        text = content(case, "grace", view)
        assert "a 4-GPU workload in project vision" in text, view
        assert SECRET in text, view
        assert OTHER not in text, view
        assert str(case.row.workload_id) not in text, view


def test_member_of_both_projects_sees_both_names(case: Case) -> None:
    for name, view in product(("alice", "heidi"), VIEW_NAMES):
        text = content(case, name, view)
        assert SECRET in text, (name, view)
        assert OTHER in text, (name, view)


def test_eviction_numbers_cover_only_queues_below_the_common_ancestor(case: Case) -> None:
    def queues(name: str, side: str) -> list[str]:
        return [queue["queue"] for queue in json.loads(content(case, name, "rest"))["numbers"][side]]

    assert queues("dave", "victim") == ["vision", "research"]
    assert queues("dave", "preemptor") == ["product"], (
        "vision must not see the numbers of ads within its department"
    )
    assert (queues("grace", "victim"), queues("grace", "preemptor")) == (["research"], ["ads", "product"])
    assert (queues("alice", "victim"), queues("alice", "preemptor")) == (
        ["vision", "research"], ["ads", "product"],
    )  # fmt: skip


def table_rows(page: str) -> list[list[str]]:
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]


def test_api_and_pages_describe_an_eviction_identically(case: Case) -> None:
    summary = json.loads(content(case, "dave", "rest"))["summary"]
    whom = "for a 2-GPU workload in project ads (4 GPUs, entire workload)"
    assert summary == f"vision/{OTHER} was reclaimed {whom}"
    assert summary in content(case, "dave", "page")
    admin = Client()
    user = case.people["alice"].user
    user.is_superuser = user.is_staff = True
    user.save()
    admin.force_login(user)
    page = admin.get(f"/admin/scheduler/eviction/{case.row.pk}/change/").content.decode()
    rest = json.loads(content(case, "alice", "rest"))
    assert f"vision/{OTHER} was reclaimed for ads/{SECRET} (4 GPUs, entire workload)" == rest["summary"]
    assert "entire workload" in page and rest["rule"] in page
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr\b.*?</tr>", page, re.DOTALL)]
    assert ["Victim", OTHER, "vision", "research"] in rows
    assert any(row[:3] == ["Preemptor", SECRET, "ads"] for row in rows)
    for side, title in (("victim", "Victim"), ("preemptor", "Preemptor")):
        for queue in rest["numbers"][side]:
            keys = ("quota", "share", "allocated_before", "allocated_after")
            amounts = [thousandths(queue[key]["gpu"]) for key in keys]
            assert [title, queue["queue"], *amounts, f"{queue['usage']:.3f}"] in table_rows(page)
    for reason in rest["numbers"]["rejected"]:
        assert f"<li>{escape(reason)}</li>" in page
    assert rest["explanation"][0] == f"Rule: {rest['rule']}."


def test_eviction_filters_do_not_reveal_hidden_names(case: Case) -> None:
    def evictions(name: str, query: str) -> Any:
        headers = token_headers(case.people[name])
        return Client().get(f"/api/v1/evictions?{query}", headers=headers)

    def count(name: str, query: str) -> int:
        return len(evictions(name, query).json()["items"])

    for query in (f"preemptor={SECRET}", f"preemptor={case.row.preemptor_id}"):
        rejected = evictions("dave", query).json()["errors"][0]
        assert (rejected["path"], rejected["message"]) == ("preemptor", "does not exist")
        assert SECRET not in rejected["allowed"]
        assert count("grace", query) == count("heidi", query) == 1
    rejected = evictions("grace", f"workload={OTHER}").json()["errors"][0]
    assert (rejected["path"], OTHER in rejected["allowed"]) == ("workload", False)
    page = Client()
    page.force_login(case.people["grace"].user)
    assert f"/evictions/{case.row.pk}" not in page.get(f"/evictions?workload={OTHER}").content.decode()
    assert f"/evictions/{case.row.pk}" in page.get("/evictions?preemptor=ads").content.decode()


def test_victim_messages_hide_the_preemptors_name(case: Case) -> None:
    workload = case.stage.cast.vision.workloads.get()
    stopped = [event.message for event in _events(case) if "Reclaimed" in event.message]
    assert stopped
    for text in (workload.message, *stopped):
        assert SECRET not in text
    assert any("for a 2-GPU workload in project ads" in text for text in stopped)


def test_dry_run_hides_the_same_names_as_the_audit(borrowing_stage: Stage) -> None:
    document = training("more", project="ads", roles=[{"name": "rank", "replicas": 1, "gpu": 1}])
    people = {**borrowing_stage.cast.people, "heidi": create_user_of_both_projects(borrowing_stage, "member")}
    for name, sees in (("grace", False), ("heidi", True), ("alice", True)):
        prediction = dry_run(actor=people[name], document=document, now=borrowing_stage.clock.now())
        assert prediction.outcome == "would_evict"
        (eviction,) = prediction.evictions
        assert (OTHER in str(eviction)) is sees, name
        whom = f"vision/{OTHER}" if sees else "a 4-GPU workload in project vision"
        assert eviction["summary"].startswith(f"{whom} would be reclaimed for ads/more")
        assert any(line.startswith("Rule: ") for line in eviction["explanation"])


def _events(case: Case) -> list[Any]:
    from projects.models import Event

    return list(Event.objects.filter(workload_id=case.row.workload_id))


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("diffusion-xl has priority 50, vit-baseline 40", "diffusion-xl has priority 50, vit-baseline 40."),
        ("scaled down to its minimum first.", "Scaled down to its minimum first."),
        ("", ""),
    ],
)
def test_project_name_at_the_start_of_an_eviction_rule_keeps_its_case(rule: str, sentence: str) -> None:
    assert capitalize_rule(rule, {"diffusion-xl", "vision"}) == sentence
