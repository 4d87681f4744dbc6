"""Tests that the form is not submitted without code from the selected source, and reports all errors."""

import pytest
from django.test import Client

from projects.models import Workload
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import HTMX, field_error, refresh_form


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


@pytest.mark.parametrize(
    ("source", "error"),
    [("git", "Enter a repository URL."), ("files", "Choose the files to send, or select No code.")],
)
def test_submission_requires_code_from_the_selected_source(
    cast: Cast, dave: Client, source: str, error: str
) -> None:
    document = "name: empty\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1}]\n"
    form = {"document": document, "agreed": document, "step": "submit", "code-source": source}
    answer = dave.post("/submit", form, headers=HTMX)
    assert answer.status_code == 422 and error in answer.content.decode()
    assert not Workload.objects.exists()
    assert dave.post("/submit", {**form, "code-source": ""}, headers=HTMX).status_code == 204


def test_unknown_project_is_reported_together_with_errors_of_the_document(dave: Client) -> None:
    answer = refresh_form(dave, "name: fine\nproject: vison\nmax_runtim: 2h\ncommand: run\nroles: [{}]\n")
    assert field_error(answer, "project") == "Does not exist. Did you mean vision? Use vision"
    assert '<code class="wrap">max_runtim</code>: <span class="wrap">Unknown key.' in answer.content.decode()


def test_error_in_a_field_does_not_hide_errors_of_the_document(dave: Client) -> None:
    document = "name: fine\nproject: vison\nroles: [{gpu: 2}]\n"
    answer = refresh_form(dave, document, **{"f:roles[0].at_least": "abc"})
    assert field_error(answer, "project") == "Does not exist. Did you mean vision? Use vision"
    assert field_error(answer, "command") == "Enter a command."
    assert field_error(answer, "roles[0].at_least") == "Must be a whole number, not text."
