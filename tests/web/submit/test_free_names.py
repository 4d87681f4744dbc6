"""Tests of the names that the submission form offers, and of errors when it opens."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from projects.models import Workload
from projects.services.workloads.templates import set_template
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import HTMX, field_error, refresh_form


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


@pytest.mark.parametrize("query", ["", "?kind=gang", "?template=vision/nightly"])
def test_form_offers_a_name_that_is_free(cast: Cast, dave: Client, query: str) -> None:
    text = "command: sleep 1\nroles: [{replicas: 1}]\n"
    set_template(actor=cast.dave, project=cast.vision, name="nightly", text=text)
    make.workload(cast.vision, "my-training")
    make.workload(cast.vision, "my-training-2", phase="succeeded")
    make.workload(cast.vision, "nightly")
    answer = dave.get(f"/submit{query}")
    name = "nightly-2" if "nightly" in query else "my-training-3"
    assert f'name="f:name" value="{name}"' in answer.content.decode()
    assert answer.context["answer"].problems == []


@pytest.mark.heavy
def test_form_offers_a_free_name_after_a_thousand_used_names(cast: Cast, dave: Client) -> None:
    make.workload(cast.vision, "my-training")
    columns = {"project": cast.vision, "spec": {}, "pools": ["local"], "phase": "completed"}
    Workload.objects.bulk_create(
        Workload(name=f"my-training-{number}", **columns, ended_at=make.ago()) for number in range(2, 1202)
    )
    with CaptureQueriesContext(connection) as queries:
        assert 'name="f:name" value="my-training-1202"' in dave.get("/submit").content.decode()
    assert len([query for query in queries if '"name" IN' in query["sql"]]) <= 12
    document = "name: my-training\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    assert field_error(refresh_form(dave, document), "name") == (
        "Already in use. Allowed: a name that no live workload of the project has."
    )


def test_form_that_opens_with_an_error_marks_its_field_and_line(cast: Cast, dave: Client) -> None:
    like = make.workload(cast.vision, "old", spec={"name": "old", "priority": "urgent", "roles": [{}]})
    answer = dave.get(f"/submit?like={like.pk}")
    page = answer.content.decode()
    assert field_error(answer, "priority") and 'id="faults-title"' in page
    assert 'id="prediction"' not in page


def test_prediction_and_check_show_the_same_error_for_a_name_in_use(cast: Cast, dave: Client) -> None:
    make.workload(cast.vision, "taken")
    document = "name: taken\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    answer = dave.post("/submit/prediction", {"document": document}, headers=HTMX)
    checked = refresh_form(dave, document)
    assert (
        field_error(answer, "name")
        == field_error(checked, "name")
        == ("Already in use. taken-2 is free. Use taken-2")
    )
    assert answer.content == checked.content


def test_prediction_for_an_invalid_document_preserves_the_form_values(sign_in: SignIn) -> None:
    valid = "name: night-run\nproject: vision\ncommand: sleep 1\n"
    answer = sign_in("dave").post(
        "/submit/prediction",
        {"document": valid + "pools: [\n", "agreed": valid},
        headers={"hx-request": "true"},
    )
    page = answer.content.decode()
    assert "The document is not valid YAML (line" in page
    assert 'value="night-run"' in page


def test_document_that_is_not_yaml_shows_only_its_syntax_error(sign_in: SignIn) -> None:
    invalid = "name: night-run\nproject: visionx\ncommand: sleep 1\n"
    form = {
        "document": invalid.replace("visionx", "vision") + "labels: [\n",
        "agreed": invalid,
        "step": "look",
    }
    answer = sign_in("dave").post("/submit", form, headers={"hx-request": "true"}).content.decode()
    errors = answer.partition('id="document-faults"')[2].partition("</section>")[0]
    assert "1 error<" in errors and "Does not exist" not in answer
    assert "Not valid YAML: a [ is not closed, or a value is missing." in errors and 'data-line="4"' in errors
