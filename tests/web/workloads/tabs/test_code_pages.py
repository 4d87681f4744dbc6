"""Tests for the code on the workload page, and for submitting the same code again in the browser."""

import html
import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from berth.documents import read_document
from pools.services.secrets import SecretContent
from projects.code.base import CodeFile
from projects.models import CodeFetch, CodeTree, Workload
from projects.services import workloads
from projects.services.code import register_tree
from projects.services.secrets import set_project_secret
from tests.cast import Cast, training
from tests.web.conftest import SignIn

COMMIT = "3b18e512dba79e4c8300dd08aeb37f8e728b8dad"


@pytest.fixture(autouse=True)
def settings_for_code(settings: Any, tmp_path: Path) -> None:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")
    settings.BERTH_LOCAL_URL = "http://127.0.0.1:8000"


@pytest.fixture
def workload(cast: Cast) -> Workload:
    files = [CodeFile("a.py"), CodeFile("latest", link="a.py")]
    tree = register_tree(actor=cast.dave, project=cast.vision, files=files).digest
    code = {"tree": tree, "commit": COMMIT, "branch": "topic/<b>", "dirty": True}
    return workloads.submit(actor=cast.dave, project=cast.vision, document=training() | {"code": code})


def test_workload_page_shows_the_commit_and_links_to_the_files(workload: Workload, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    overview = dave.get(f"/workloads/{workload.pk}").content.decode()
    assert COMMIT[:10] in overview
    assert "on topic/&lt;b&gt;</span> <span>(modified)" in overview
    page = dave.get(f"/workloads/{workload.pk}/spec").content.decode()
    assert COMMIT in page
    assert "differs from the commit" in page
    assert "in 2 files" in page
    address = f"/api/v1/workloads/{workload.pk}/code"
    assert address in page
    answer = dave.get(address)
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/x-tar")
    assert answer["Content-Disposition"] == 'attachment; filename="train-1-code.tar"'
    assert sign_in("grace").get(address).status_code == 404


@pytest.mark.heavy
def test_workload_page_states_that_the_files_have_expired(workload: Workload, sign_in: SignIn) -> None:
    CodeTree.objects.all().delete()
    page = sign_in("dave").get(f"/workloads/{workload.pk}/spec").content.decode()
    assert "The files have expired." in page
    assert f"/api/v1/workloads/{workload.pk}/code" not in page


@pytest.mark.heavy
def test_copied_workload_is_submitted_with_the_same_code(workload: Workload, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    text = dave.get(f"/submit?like={workload.pk}").context["text"]
    assert workload.spec["code"]["tree"] in text
    dave.post("/submit", {"document": text, "agreed": text, "step": "submit"})
    again = Workload.objects.exclude(pk=workload.pk).get()
    assert again.code_id == workload.code_id


GIT = {"url": "https://git.example.org/vision/train.git", "ref": "v2", "directory": "jobs", "secret": "robot"}


@pytest.fixture
def git_workload(cast: Cast) -> Workload:
    content = SecretContent("token-of-the-robot")
    set_project_secret(
        actor=cast.alice, project=cast.vision, name="robot", content=content, at=timezone.now()
    )
    document = training() | {"code": {"git": GIT}}
    return workloads.submit(actor=cast.dave, project=cast.vision, document=document)


def test_pages_show_the_repository_before_and_after_the_fetch(
    git_workload: Workload, sign_in: SignIn
) -> None:
    dave, address = sign_in("dave"), f"/workloads/{git_workload.pk}"
    assert "not fetched" in dave.get(address).content.decode()
    page = dave.get(f"{address}/spec").content.decode()
    for text in (*GIT.values(), "Not fetched yet"):
        assert text in page
    fetched = {"state": "fetched", "commit": COMMIT, "branch": "main", "secret_version": 3}
    CodeFetch.objects.update(**fetched)
    page = dave.get(f"{address}/spec").content.decode()
    assert COMMIT in page
    assert "robot, <span>version 3</span>" in page
    assert "Not fetched" not in page
    assert "differs from the commit" not in page
    CodeFetch.objects.update(state="failed", error="The server denied access.")
    assert "The server denied access." in dave.get(f"{address}/spec").content.decode()


@pytest.mark.heavy
def test_form_shows_and_removes_the_repository(git_workload: Workload, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    answer = dave.get(f"/submit?like={git_workload.pk}")
    assert "Files that you upload replace this repository." in answer.content.decode()
    assert answer.context["code_source"] == "git"
    text = answer.context["text"]
    form = {"document": text, "agreed": text, "step": "submit"}
    dave.post("/submit", form | {"f:code.git.ref": "main", "f:name": "again"})
    again = Workload.objects.exclude(pk=git_workload.pk).get()
    assert again.spec["code"]["git"]["ref"] == "main"
    assert again.code_fetch_id != git_workload.code_fetch_id
    empty = {f"f:code.git.{name}": "" for name in GIT}
    answer = dave.post("/submit", form | {"step": "check", **empty})
    assert "code" not in read_document(answer.context["text"])


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"url": "file:///etc"}, "Uses the protocol file, which is not allowed."),
        ({"url": "git@git.example.org:a.git"}, "Uses an SSH address without a key."),
        ({"url": "https://git.example.org/a.git", "secret": "robto"}, "Did you mean `robot`?"),
        ({"url": "https://10.0.0.1/a.git"}, "BERTH_GIT_HOSTS"),
    ],
)
def test_form_shows_repository_errors_next_to_their_fields(
    git_workload: Workload, sign_in: SignIn, section: dict[str, str], message: str
) -> None:
    text = json.dumps(training() | {"project": "vision", "name": "other", "code": {"git": section}})
    answer = sign_in("dave").post("/submit", {"document": text, "agreed": text, "step": "check"})
    shown = answer.context["shown"]
    (part,) = [part for part in shown.parts if part.title == "Code from Git"]
    errors = [error.text for field in (*part.fields, *part.more) for error in field.errors]
    assert len(errors) == 1
    assert message in errors[0]
    assert [fault.field is not None for fault in shown.faults] == [True], "the field shows the only error"
    assert html.escape(errors[0]).replace("`", "") in strip_tags(answer.content.decode())
