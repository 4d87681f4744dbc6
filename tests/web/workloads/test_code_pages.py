"""Tests for the code of a workload on its page, and for submitting the same code again in the browser."""

from pathlib import Path
from typing import Any

import pytest

from projects.models import CodeTree, Workload
from projects.services import workloads
from projects.services.code import CodeFile, register_tree
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
    assert "on topic/&lt;b&gt;, modified" in overview
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


def test_workload_page_states_that_the_files_have_expired(workload: Workload, sign_in: SignIn) -> None:
    CodeTree.objects.all().delete()
    page = sign_in("dave").get(f"/workloads/{workload.pk}/spec").content.decode()
    assert "The files have expired." in page
    assert f"/api/v1/workloads/{workload.pk}/code" not in page


def test_cloned_workload_is_submitted_with_the_same_code(workload: Workload, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    text = dave.get(f"/submit?like={workload.pk}").context["text"]
    assert workload.spec["code"]["tree"] in text
    dave.post("/submit", {"document": text, "agreed": text, "step": "submit"})
    again = Workload.objects.exclude(pk=workload.pk).get()
    assert again.code_id == workload.code_id
