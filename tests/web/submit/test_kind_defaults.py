"""Tests for choosing a kind of workload in the submission form."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from berth.documents import read_document
from scheduler.web.submit.document_presets import EXAMPLES
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


def example(key: str, name: str = "") -> str:
    _, default, body = EXAMPLES[key]
    return f"name: {name or default}\nproject: vision\n{body}"


def choose_kind(client: Client, document: str, kind: str) -> tuple[str, str]:
    """Return the document and the page after choosing a kind in the form."""
    data: dict[str, Any] = {"document": document, "agreed": document, "step": "look", "f:kind": kind}
    page = client.post("/submit", data, headers={"HX-Request": "true"}).content.decode()
    match = re.search(r'id="document"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    assert match
    return unescape(match[1]).removesuffix("\n"), page


@pytest.mark.parametrize("old", ["single", "gang", "roles", "elastic", "service"])
def test_unedited_example_becomes_the_example_of_the_chosen_kind(dave: Client, old: str) -> None:
    text, page = choose_kind(dave, example(old), "interactive")
    assert text == example("interactive").removesuffix("\n")
    assert "faults-title" not in page


def test_changing_the_kind_keeps_the_project_and_offers_a_free_name(cast: Cast, dave: Client) -> None:
    make.workload(cast.vision, "my-session")
    assert choose_kind(dave, example("single", "my-training-7"), "interactive")[0].startswith(
        "name: my-session-2\nproject: vision\nkind: interactive\n"
    )
    assert choose_kind(dave, example("single", "mine"), "interactive")[0].startswith("name: mine\n")


def test_choosing_training_again_restores_the_first_example(dave: Client) -> None:
    session, _ = choose_kind(dave, example("single"), "interactive")
    assert choose_kind(dave, session, "")[0] == example("single").removesuffix("\n")


def test_changing_the_kind_keeps_edited_values(dave: Client) -> None:
    document = example("single").replace("gpu: 1 ", "gpu: 4 ") + "max_runtime: 2h  # short\npriority: high\n"
    text, _ = choose_kind(dave, document, "interactive")
    data = read_document(text)
    assert (data["command"], data["idle_timeout"], data["priority"]) == ("sleep 8h", "1h", "high")
    assert data["roles"][0]["gpu"] == 4
    assert "max_runtime: 2h  # short" in text


@pytest.mark.parametrize(
    "document",
    [
        example("single").replace("sleep 5", "sleep 6"),
        example("roles").replace("replicas: 4", "replicas: 3"),
    ],
)
def test_changing_the_kind_keeps_edited_commands(dave: Client, document: str) -> None:
    before = {key: value for key, value in read_document(document).items() if key != "name"}
    after = read_document(choose_kind(dave, document, "interactive")[0])
    assert {key: value for key, value in after.items() if key != "name"} == before | {"kind": "interactive"}


@pytest.mark.parametrize(
    ("ports", "hint"),
    [("", "Open a shell in its tab Terminal"), ("ports: [{name: jupyter}]\n", "button for each port")],
)
def test_form_explains_how_to_reach_a_session(dave: Client, ports: str, hint: str) -> None:
    document = example("interactive") + ports
    page = choose_kind(dave, document, "interactive")[1]
    match = re.search(r'id="f-command-hint">(.*?)</span>', page, re.DOTALL)
    assert match and hint in match[1] and 'href="/docs/ports/"' in match[1]
    assert "f-command-hint" not in choose_kind(dave, example("single"), "")[1]
