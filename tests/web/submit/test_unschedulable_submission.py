"""Tests for the submission of a workload that can never start as specified."""

import re
from html import unescape

import pytest
from django.contrib.messages import WARNING, get_messages
from django.test import Client

from projects.models import Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import HTMX, refresh_form

TEXT = "name: wide\nproject: vision\ncommand: run\nroles: [{gpu: 9}]\n"
LABEL = '<span id="submit-label" class="warns" hx-swap-oob="true">{}</span>'


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    larger = make.pool("train", gpus=8)
    make.node(cast.pool, gpus=2)
    make.node(larger, gpus=8)
    for pool in (cast.pool, larger):
        make.quota(cast.research, pool, 64)
        make.quota(cast.vision, pool, 64)
    return sign_in("dave")


def predict(client: Client, text: str) -> str:
    return unescape(client.post("/submit/prediction", {"document": text}, headers=HTMX).content.decode())


def test_verdict_names_the_largest_node_of_all_allowed_pools(dave: Client) -> None:
    assert "the largest node in the allowed pools has 8 GPUs (pool train)." in predict(dave, TEXT)
    assert "Can never start" not in predict(dave, TEXT.replace("9", "8"))


def test_verdict_links_to_the_field_to_change_and_marks_it(dave: Client) -> None:
    page = predict(dave, TEXT)
    assert 'Change <a href="#f-roles-0-gpu">GPUs per pod</a>.' in page
    assert re.search(r'id="w-f-roles-0-gpu" data-field hx-swap-oob="true"', page)
    assert 'id="f-roles-0-gpu-warning">No matching node has more than 8 GPUs.</span>' in page
    many = predict(dave, TEXT.replace("gpu: 9", "gpu: 1, replicas: 50"))
    assert 'Change <a href="#f-roles-0-at_least">Replicas</a>.' in many
    assert "more than pool train, the largest of the allowed pools, provides" in many


@pytest.mark.parametrize(("section", "label"), [("", "Submit anyway"), ("kind: service\n", "Create anyway")])
def test_submit_button_for_an_unschedulable_workload_reads_submit_anyway(
    dave: Client, section: str, label: str
) -> None:
    assert LABEL.format(label) in predict(dave, TEXT + section)
    assert "anyway" not in predict(dave, TEXT.replace("9", "8") + section)
    checked = refresh_form(dave, TEXT + section).content.decode()
    assert "anyway" not in checked, "the label lasts until the next edit"


@pytest.mark.parametrize(("gpus", "warns"), [(9, True), (8, False)])
def test_message_after_submission_warns_that_the_workload_can_never_start(
    dave: Client, gpus: int, *, warns: bool
) -> None:
    assert 'type="hidden" name="never-starts"' in predict(dave, TEXT)
    form = {"document": TEXT.replace("9", str(gpus)), "step": "submit", "never-starts": "1"}
    answer = dave.post("/submit", form, headers=HTMX)
    assert answer.status_code == 204 and Workload.objects.get().name == "wide"
    (message,) = get_messages(answer.wsgi_request)
    assert ("It can never start as specified." in str(message)) is warns
    assert (message.level == WARNING) is warns
