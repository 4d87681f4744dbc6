"""Tests for the template pages: use, edit, save from a workload, and conflicts."""

from typing import Any

import pytest
from django.test import Client

from projects.models import Audit, Template, Workload
from projects.services.workloads.templates import set_template
from scheduler.web.submit.form.draft import PREFIX
from scheduler.web.submit.templates import describe_request
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
TEXT = "# every night\ncommand: train   # all of it\nroles: [{name: worker, replicas: 2, gpu: 1}]\n"
PAGE = "/templates/vision/nightly/edit"


@pytest.fixture
def nightly_template(cast: Cast) -> Template:
    return set_template(
        actor=cast.dave, project=cast.vision, name="nightly", text=TEXT, description="<b>every night</b>"
    )


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


def edit_form(template: Template, **values: Any) -> dict[str, Any]:
    return {
        "document": template.text, "agreed": template.text, "description": template.description,
        "version": template.version, "step": "save", **values,
    }  # fmt: skip


def test_submission_starts_from_a_template(nightly_template: Template, dave: Client) -> None:
    answer = dave.get("/submit?template=vision/nightly")
    assert answer.context["text"] == (
        "# every night\nname: nightly\nproject: vision\n" + TEXT.removeprefix("# every night\n")
    )
    assert "?template=vision/nightly" in dave.get("/submit").content.decode()
    sending = {"document": answer.context["text"], "step": "submit"}
    assert dave.post("/submit", sending, headers=HTMX).status_code == 204
    assert Workload.objects.get().name == "nightly"


@pytest.mark.parametrize(
    ("roles", "shown"),
    [
        ("[{name: a, gpu: 2}]", "2 GPUs"),
        ("[{name: a, replicas: 4, gpu: 1}, {name: b, cpu: 8}]", "4 replicas of 1 GPU, 8 CPUs"),
        ("[{name: a, min: 1, max: 3, gpu: 0.5}]", "1 to 3 replicas of 0.5 GPUs"),
        ("none", ""),
    ],
)
def test_template_list_shows_what_the_roles_request(roles: str, shown: str) -> None:
    assert describe_request(f"command: x\nroles: {roles}\n") == shown


def test_template_list_offers_actions_by_role(nightly_template: Template, sign_in: SignIn) -> None:
    shown = {name: sign_in(name).get("/templates").content.decode() for name in ("dave", "erin", "grace")}
    assert 'href="/templates/vision/nightly/edit"' in shown["dave"] and "Use template<" in shown["dave"]
    assert (
        "nightly" in shown["erin"] and "Use template<" not in shown["erin"] and "/edit" not in shown["erin"]
    )
    assert "vision/nightly" not in shown["grace"]
    assert "No templates yet" in shown["grace"]
    assert "&lt;b&gt;every night" in shown["dave"] and "<b>every night" not in shown["dave"]
    matches = sign_in("carol").get("/templates?search=night&project=vision", headers=HTMX).content.decode()
    assert "nightly" in matches
    assert (
        "No templates match" in sign_in("carol").get("/templates?search=zzz", headers=HTMX).content.decode()
    )


def test_template_can_be_edited_in_form_and_document(nightly_template: Template, dave: Client) -> None:
    page = dave.get(PAGE).content.decode()
    assert "# every night" in page and 'name="f:roles[0].gpu"' in page
    typed = edit_form(nightly_template, description="weekly", **{PREFIX + "roles[0].gpu": "0.5"})
    answer = dave.post(PAGE, typed, headers=HTMX)
    assert answer.headers["HX-Redirect"] == "/templates"
    nightly_template.refresh_from_db()
    assert (nightly_template.text, nightly_template.description) == (
        TEXT.replace("gpu: 1", "gpu: 0.5"),
        "weekly",
    )
    row = Audit.objects.filter(action="set_template").latest("pk")
    assert (row.actor, row.object_name) == ("dave", "vision/nightly")
    assert set(row.after or {}) == {"description", "document"}


@pytest.mark.heavy
def test_conflicting_template_edit_shows_both_versions_and_can_be_saved_again(
    nightly_template: Template, dave: Client, sign_in: SignIn
) -> None:
    theirs = edit_form(nightly_template, document=TEXT + "priority: 10\n")
    assert sign_in("carol").post(PAGE, theirs, headers=HTMX).status_code == 204
    mine = edit_form(nightly_template, document=TEXT + "priority: 20\n")
    answer = dave.post(PAGE, mine, headers=HTMX)
    text = answer.content.decode()
    assert answer.status_code == 412
    assert "carol saved the version below" in text and "priority: 10" in text and "priority: 20" in text
    again = {**mine, "version": answer.context["template_page"].version}
    assert dave.post(PAGE, again, headers=HTMX).status_code == 204
    nightly_template.refresh_from_db()
    assert "priority: 20" in nightly_template.text


@pytest.mark.heavy
def test_template_errors_are_shown_on_fields_and_lines(nightly_template: Template, dave: Client) -> None:
    answer = dave.post(
        PAGE, edit_form(nightly_template, document=TEXT.replace("gpu: 1", "gpu: 1.5")), headers=HTMX
    )
    text = answer.content.decode()
    assert answer.status_code == 422
    assert 'id="f-roles-0-gpu-error"' in text and 'data-line="3"' in text
    looked = dave.post(
        PAGE, edit_form(nightly_template, document="colour: red\n" + TEXT, step="look"), headers=HTMX
    )
    assert looked.status_code == 200 and "Unknown key" in looked.content.decode()


def test_new_template_is_validated_and_cannot_be_saved_twice(cast: Cast, dave: Client) -> None:
    page = dave.get("/templates/vision/new")
    values = {"document": page.context["text"], "step": "save", "version": "0", "name": "fresh"}
    assert dave.post("/templates/vision/new", {**values, "name": "No"}, headers=HTMX).status_code == 422
    assert dave.post("/templates/vision/new", values, headers=HTMX).status_code == 204
    assert Template.objects.get().handle == "vision/fresh"
    assert dave.post("/templates/vision/new", values, headers=HTMX).status_code == 412


@pytest.mark.heavy
def test_template_saved_from_a_workload_omits_the_workload_name(cast: Cast, dave: Client) -> None:
    like = make.workload(cast.vision, "train")
    page = dave.get(f"/workloads/{like.pk}/spec").content.decode()
    assert f"/templates/save?like={like.pk}" in page and f"/submit?like={like.pk}" in page
    form = dave.get(f"/templates/save?like={like.pk}&project=vision").context["form"]
    assert "name: train" not in form["document"].value() and "project:" not in form["document"].value()
    values = {
        "project": "vision",
        "name": "from-train",
        "description": "",
        "document": form["document"].value(),
    }
    assert dave.post("/templates/save", values, headers=HTMX).status_code == 204
    again = dave.post("/templates/save", values, headers=HTMX)
    assert again.status_code == 422 and "A template with this name exists" in again.content.decode()


def test_new_template_is_stored_only_when_it_is_saved_in_the_editor(cast: Cast, dave: Client) -> None:
    page = dave.get("/templates/save", follow=True)
    assert page.redirect_chain[-1][0] == "/templates/vision/new"
    text = page.content.decode()
    assert not Template.objects.exists()
    assert '<select id="template-project" name="project">' in text
    assert 'name="f:project"' not in text, "workloads get the project in which the template is used"
    values = {"document": TEXT, "step": "save", "version": "0", "project": "vision"}
    wrong = dave.post("/templates/vision/new", values | {"name": "Bad Name!"}, headers=HTMX)
    error = "Use lowercase letters, digits and hyphens, for example bad-name."
    assert f'id="template-name_error" role="alert">{error}</span>' in wrong.content.decode()
    assert not Template.objects.exists()
    assert dave.post("/templates/vision/new", values | {"name": "fresh"}, headers=HTMX).status_code == 204
    assert Template.objects.get().handle == "vision/fresh"


@pytest.mark.heavy
def test_document_on_the_submit_page_can_be_saved_as_a_template(cast: Cast, dave: Client) -> None:
    document = "name: x\nproject: vision\n" + TEXT
    dialog = dave.post("/templates/save", {"document": document, "step": "ask"}, headers=HTMX)
    assert dialog.status_code == 200
    form = dialog.context["form"]
    assert (form["document"].value(), form["name"].value()) == (TEXT, "x")
    broken = {"project": "vision", "name": "x", "document": "a: ["}
    assert "Not valid YAML" in dave.post("/templates/save", broken, headers=HTMX).content.decode()


def test_deleting_a_template_requires_confirmation(nightly_template: Template, dave: Client) -> None:
    path = "/templates/vision/nightly/delete"
    assert "Delete template vision/nightly?" in dave.get(path).content.decode()
    assert Template.objects.exists()
    assert dave.post(path, headers=HTMX).status_code == 204
    assert not Template.objects.exists()


def test_templates_return_404_for_other_projects_and_403_for_viewers(
    nightly_template: Template, sign_in: SignIn
) -> None:
    for path in (PAGE, "/templates/vision/nightly/delete", "/templates/vision/new"):
        assert sign_in("grace").get(path).status_code == 404
        assert sign_in("erin").get(path).status_code == 403
    assert "# every night" not in sign_in("grace").get("/submit?template=vision/nightly").content.decode()
    values = {"project": "vision", "name": "sneaky", "document": TEXT}
    assert sign_in("grace").post("/templates/save", values, headers=HTMX).status_code == 422
    assert Template.objects.count() == 1
