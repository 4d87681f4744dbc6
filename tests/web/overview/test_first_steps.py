"""Tests for the first steps on the overview, and for help links."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from berth.server.web.navigation import CHAPTERS, GROUPS, help_chapter
from berth.server.web.overview.first_steps import first_steps
from pools.providers.hardware import Machine
from projects.models import Department, Membership, Project, Quota, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def empty_cast(cast: Cast) -> Cast:
    """Return the cast without pools, tenants and quotas. Only alice, a platform admin, has a role."""
    Membership.objects.exclude(user=cast.alice.user).delete()
    Quota.objects.all().delete()
    Project.objects.all().delete()
    Department.objects.all().delete()
    cast.pool.delete()
    return cast


def open_steps(cast: Cast) -> list[str]:
    return [step.title for step in first_steps(cast.alice, can_submit=True).steps if not step.done]


@pytest.mark.heavy
def test_first_steps_guide_the_admin_of_an_empty_installation_to_the_first_workload(
    empty_cast: Cast, sign_in: SignIn
) -> None:
    text = sign_in("alice").get("/").content.decode()
    for title in open_steps(empty_cast):
        assert title in text
    assert len(open_steps(empty_cast)) == 5
    pool = make.pool("train")
    department = Department.objects.create(name="research")
    project = Project.objects.create(name="vision", department=department)
    assert "Set a quota" in open_steps(empty_cast) and "Create a node pool" not in open_steps(empty_cast)
    make.quota(project, pool, 2)
    bob = User.objects.get(username="bob")
    Membership.objects.create(user=bob, role="member", project=project)
    assert open_steps(empty_cast) == ["Submit the first workload"]
    workload = make.workload(project, "first", by=empty_cast.alice.user)
    assert open_steps(empty_cast) == []
    Quota.objects.all().delete()
    assert open_steps(empty_cast) == ["Set a quota"]
    Workload.objects.filter(pk=workload.pk).update(first_started_at=make.ago(minutes=1))
    text = sign_in("alice").get("/").content.decode()
    assert '<details class="card first-steps' in text and "Set a quota" in text and "4 of 5" in text
    assert "GPUs by project" in text, "an installation that runs workloads shows the entire overview"
    Workload.objects.filter(pk=workload.pk).update(first_started_at=make.ago(hours=8 * 24))
    assert open_steps(empty_cast) == []


def test_first_steps_link_directly_to_the_next_form(empty_cast: Cast, sign_in: SignIn) -> None:
    def paths() -> list[str]:
        return [step.path for step in first_steps(empty_cast.alice, can_submit=True).steps if not step.done]

    User.objects.exclude(pk=empty_cast.alice.user.pk).delete()
    assert paths() == [
        "/node-pools/new", "/departments/new", "/quotas", "/access/users/new", "/submit",
    ]  # fmt: skip
    make.pool("train")
    Department.objects.create(name="research")
    User.objects.create(username="new")
    assert paths() == [
        "/departments/research/new-project", "/quotas/departments/research/train", "/access/grant", "/submit",
    ]  # fmt: skip
    alice = sign_in("alice")
    assert all(alice.get(path).status_code == 200 for path in paths())


def test_form_on_its_own_page_redirects_when_completed_but_a_dialog_does_not(
    empty_cast: Cast, sign_in: SignIn
) -> None:
    alice, form = sign_in("alice"), {"username": "new", "email": "", "password": "a correct horse"}
    htmx = {"HX-Request": "true"}
    own_page = {**htmx, "HX-Current-URL": "http://testserver/access/users/new"}
    assert alice.post("/access/users/new", form, headers=own_page)["HX-Redirect"] == "/access"
    assert "User new created." in alice.get("/access").content.decode()
    in_dialog = {**htmx, "HX-Current-URL": "http://testserver/access"}
    answer = alice.post("/access/users/new", {**form, "username": "newer"}, headers=in_dialog)
    assert answer.status_code == 204 and "HX-Redirect" not in answer


def test_pool_and_submission_forms_request_no_gpus_on_a_machine_without_gpus(
    empty_cast: Cast, sign_in: SignIn, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = sign_in("alice")

    def offered() -> Any:
        return alice.get("/node-pools/new").context["form"]["gpus_per_node"].value()

    settings.BERTH_DECLARED_GPUS = 8
    assert offered() == 2
    monkeypatch.setattr("pools.web.pools.local_machine", lambda: Machine(2000, 4096, ()))
    assert offered() == 0
    assert "This machine has 0 GPUs." in alice.get("/node-pools/new").content.decode()
    make.pool("cpus", gpus=0)
    Project.objects.create(name="vision", department=Department.objects.create(name="research"))
    assert "gpu: 0 " in alice.get("/submit").content.decode()
    make.pool("gpus", gpus=2)
    assert "gpu: 1 " in alice.get("/submit").content.decode()


@pytest.mark.heavy
def test_submit_page_of_an_empty_installation_links_to_the_missing_step(
    empty_cast: Cast, sign_in: SignIn
) -> None:
    def shown() -> str:
        answer = sign_in("alice").get("/submit")
        assert answer.status_code == 200
        return str(answer.content.decode())

    text = shown()
    assert "No node pools yet" in text and f'href="{reverse("pool-new")}">Create node pool</a>' in text
    assert "my-project" not in text and "<textarea" not in text
    make.pool("train")
    assert "No projects yet" in shown() and f'href="{reverse("quotas")}">Go to quotas</a>' in shown()
    department = Department.objects.create(name="research")
    Project.objects.create(name="vision", department=department)
    assert "<textarea" in shown() and "project: vision" in shown()


@pytest.mark.heavy
def test_submit_page_without_pools_tells_a_member_whom_to_contact(cast: Cast, sign_in: SignIn) -> None:
    cast.pool.delete()
    text = sign_in("dave").get("/submit").content.decode()
    assert "Ask a platform admin to create one." in text and reverse("pool-new") not in text


@pytest.mark.heavy
def test_member_sees_first_steps_until_the_first_submission(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "carols", by=cast.carol.user)
    text = sign_in("dave").get("/").content.decode()
    assert "Submit your first workload" in text
    assert "Create a node pool" not in text
    button = '<a class="button primary" href="/submit">'
    assert button not in text, "the first steps have a button of their own"
    make.workload(cast.vision, "own", by=cast.dave.user)
    text = sign_in("dave").get("/").content.decode()
    assert '<details class="card first-steps' in text, "the open step folds"
    assert button in text


@pytest.mark.parametrize("name", ["erin", "frank"])
def test_users_without_permission_to_submit_see_no_first_steps(
    name: str, cast: Cast, sign_in: SignIn
) -> None:
    assert "First steps" not in sign_in(name).get("/").content.decode()


def test_first_steps_are_loaded_in_one_query(cast: Cast) -> None:
    for actor in (cast.alice, cast.dave):
        with CaptureQueriesContext(connection) as queries:
            first_steps(actor, can_submit=True)
        own = [one for one in queries if "EXISTS" in one["sql"] and "auth_user" in one["sql"]]
        assert len(own) == 1


def test_every_menu_page_links_to_an_existing_documentation_chapter() -> None:
    entries = [entry.path for _, group in GROUPS for entry in group]
    assert all(help_chapter(path) != help_chapter("/") for path in entries if path != "/")
    steps = ["researchers/#install-and-sign-in", "admins/#quotas", "researchers/#submit-a-workload"]
    for chapter in [chapter for _, chapter in CHAPTERS] + steps:
        page, _, anchor = chapter.partition("#")
        text = (DOCS / f"{page.strip('/')}.md").read_text()
        anchors = {
            re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in anchors, chapter


def test_page_links_to_its_documentation_chapter(cast: Cast, sign_in: SignIn) -> None:
    for name, chapter in (("queue", "concepts/#pending-reasons"), ("services", "services/")):
        assert f'href="/docs/{chapter}"' in sign_in("dave").get(reverse(name)).content.decode()


@pytest.mark.heavy
def test_overview_of_a_researcher_begins_with_their_own_workloads_and_queue_positions(
    cast: Cast, sign_in: SignIn
) -> None:
    for name, position in (("unschedulable", None), ("second", 7), ("first", 2)):
        make.workload(
            cast.vision, name, by=cast.dave.user, reason="WouldExceedFairShare",
            explanation={"queue_position": position, "expected_start": make.ago(minutes=-9).isoformat()},
        )  # fmt: skip
    make.workload(cast.vision, "runs", by=cast.dave.user, phase="running", run=1)
    make.workload(cast.vision, "carols", by=cast.carol.user)
    for name, hours in (("old", 30), ("done", 3), ("failed", 2)):
        phase = "failed" if name == "failed" else "completed"
        make.workload(cast.vision, name, by=cast.dave.user, phase=phase, ended_at=make.ago(hours=hours))
    answer = sign_in("dave").get("/")
    assert [(own.workload.name, own.position) for own in answer.context["mine"]] == [
        ("first", 2), ("second", 7), ("unschedulable", None), ("runs", None),
        ("failed", None), ("done", None),
    ]  # fmt: skip
    text = answer.content.decode()
    assert text.index("My workloads") < text.index("GPUs by project")
    assert "My workloads" not in sign_in("alice").get("/").content.decode()


def test_empty_installation_shows_only_the_first_steps(empty_cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("alice").get("/").content.decode()
    assert "First steps" in text
    for title in ("GPUs allocated", "GPUs by project", "Pending reasons", "Devices", "Recent evictions"):
        assert title not in text
    usage = sign_in("alice").get("/usage").content.decode()
    assert "once the first workload has run" in usage and "longer period" not in usage
    make.node(make.pool("train"))
    assert "GPUs allocated" in sign_in("alice").get("/").content.decode()


@pytest.mark.heavy
def test_new_member_sees_the_overview_below_their_first_steps(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("dave").get("/").content.decode()
    assert "Submit your first workload" in text and "GPUs by project" in text
