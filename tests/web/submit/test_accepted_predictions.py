"""Tests for the prediction on the page of a workload that was just submitted or edited."""

import re
from datetime import timedelta
from html import unescape
from typing import cast as type_cast

import pytest
from django.test import Client, RequestFactory
from django.utils import timezone

from berth.core.errors import RateLimited
from berth.documents import read_document
from berth.server.web.pages import Request
from projects.models import Workload
from scheduler.web import accepted_prediction
from scheduler.web.accepted_prediction import AcceptedPrediction, sign_prediction
from scheduler.web.submit import edit, pages
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import HTMX

TEXT = "name: fine\nproject: vision\ncommand: run\nroles: [{gpu: 2}]\n"
TITLE, STARTS = "Predicted when submitted", "Would start immediately."


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    make.node(cast.pool, gpus=4)
    make.quota(cast.research, cast.pool, 8)
    make.quota(cast.vision, cast.pool, 8)
    return sign_in("dave")


def signed_prediction(client: Client, path: str, text: str) -> str:
    page = client.post(f"{path}/prediction", {"document": text}, headers=HTMX).content.decode()
    match = re.search(r'name="predicted" value="([^"]+)"', page)
    return match[1] if match else ""


def submit(client: Client, predicted: str, text: str = TEXT) -> Workload:
    answer = client.post("/submit", {"document": text, "step": "submit", "predicted": predicted})
    assert answer.status_code == 302
    return Workload.objects.get()


def text_of(client: Client, workload: Workload) -> str:
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    return " ".join(re.sub(r"<[^>]+>", " ", unescape(page)).split())


def test_new_workload_shows_its_prediction_until_the_first_cycle(cast: Cast, dave: Client) -> None:
    workload = submit(dave, signed_prediction(dave, "/submit", TEXT))
    shown = text_of(dave, workload)
    assert TITLE in shown and STARTS in shown
    assert f"Nodes 1 pod on {cast.pool.nodes.get().name}, pool {cast.pool.name}" in shown
    assert "The next scheduling cycle evaluates the workload." in shown
    Workload.objects.update(explained_at=timezone.now())
    assert TITLE not in text_of(dave, workload)


def test_only_the_user_who_submitted_the_workload_sees_the_prediction(
    cast: Cast, sign_in: SignIn, dave: Client
) -> None:
    workload = submit(dave, signed_prediction(dave, "/submit", TEXT))
    assert TITLE not in text_of(sign_in("alice"), workload)
    assert TITLE not in text_of(sign_in("dave"), workload), "the prediction belongs to one session"


def test_prediction_for_another_document_is_not_shown(dave: Client) -> None:
    other = signed_prediction(dave, "/submit", TEXT.replace("gpu: 2", "gpu: 1"))
    assert other and TITLE not in text_of(dave, submit(dave, other))


@pytest.mark.parametrize("predicted", ["", "forged:message:x"])
def test_unsigned_prediction_is_not_shown(dave: Client, predicted: str) -> None:
    assert TITLE not in text_of(dave, submit(dave, predicted))


def test_prediction_of_another_user_is_not_shown(cast: Cast, sign_in: SignIn, dave: Client) -> None:
    foreign = signed_prediction(sign_in("alice"), "/submit", TEXT)
    assert foreign and TITLE not in text_of(dave, submit(dave, foreign))


def test_edited_workload_shows_the_prediction_of_the_edit(cast: Cast, dave: Client) -> None:
    workload = submit(dave, "")
    Workload.objects.update(explained_at=timezone.now(), explanation={"blockers": []})
    path = f"/workloads/{workload.pk}/edit"
    text = dave.get(path).context["text"].replace("gpu: 2", "gpu: 3")
    predicted = signed_prediction(dave, path, text)
    form = {"document": text, "version": workload.version, "step": "save", "predicted": predicted}
    assert dave.post(path, form, headers=HTMX).status_code == 204
    shown = text_of(dave, workload)
    assert "Predicted when edited" in shown and STARTS in shown
    assert "The next scheduling cycle evaluates the edit." in shown
    Workload.objects.update(explained_at=timezone.now())
    assert "Predicted when edited" not in text_of(dave, workload)


def evicting_prediction(cast: Cast, text: str, *, is_edit: bool = False) -> str:
    request = type_cast("Request", RequestFactory().get("/submit"))
    request.user = cast.dave.user
    title, reason = "Would start and evict 1 other workload", "Evicts vision/low (4 GPUs)."
    now = timezone.now().isoformat()
    prediction = AcceptedPrediction(title, reason, [], ["vision/low"], "", now, is_edit)
    return sign_prediction(request, prediction, read_document(text))


def test_submission_that_would_evict_workloads_requires_confirmation(cast: Cast, dave: Client) -> None:
    form = {"document": TEXT, "step": "submit", "predicted": evicting_prediction(cast, TEXT)}
    question = dave.post("/submit", form, headers=HTMX)
    assert (question.status_code, question.headers["HX-Retarget"]) == (200, "#dialog")
    assert "Submit and evict?" in question.content.decode() and "vision/low" in question.content.decode()
    assert not Workload.objects.exists()
    assert dave.post("/submit", form | {"step": "submit-evicting"}, headers=HTMX).status_code == 204
    assert Workload.objects.get().name == "fine"


def test_invalid_submission_shows_its_errors_instead_of_a_confirmation(cast: Cast, dave: Client) -> None:
    text = TEXT.replace("command: run\n", "")
    form = {"document": text, "step": "submit", "predicted": evicting_prediction(cast, text)}
    answer = dave.post("/submit", form, headers=HTMX)
    assert answer.status_code == 422 and "HX-Retarget" not in answer.headers


def test_edit_that_would_evict_workloads_requires_confirmation(cast: Cast, dave: Client) -> None:
    workload = submit(dave, "")
    path = f"/workloads/{workload.pk}/edit"
    text = dave.get(path).context["text"].replace("gpu: 2", "gpu: 3")
    predicted = evicting_prediction(cast, text, is_edit=True)
    form = {"document": text, "version": workload.version, "step": "save", "predicted": predicted}
    question = dave.post(path, form, headers=HTMX)
    assert question.headers["HX-Retarget"] == "#dialog" and "Save and evict?" in question.content.decode()
    workload.refresh_from_db()
    assert workload.edits == 0
    assert dave.post(path, form | {"step": "save-evicting"}, headers=HTMX).status_code == 204
    workload.refresh_from_db()
    assert workload.edits == 1


URGENT = TEXT + "priority: 50\n"


@pytest.fixture
def low(cast: Cast, dave: Client) -> Workload:
    """Return a workload that occupies all GPUs and that workloads of higher priority evict."""
    workload = make.workload(
        cast.vision, "low", phase="running", run=1, pool=cast.pool, priority=10, started_at=make.ago(hours=1),
        replicas=4,
    )  # fmt: skip
    for index in range(4):
        make.place(workload, cast.pool.nodes.get(), [index], index=index)
    return workload


def reject_dry_run(**_: object) -> None:
    raise RateLimited(2, "vision already has the maximum of 3 dry runs in progress. Try again in 2 s.")


@pytest.mark.parametrize("state", ["missing", "expired", "for another document"])
@pytest.mark.usefixtures("low")
def test_submission_requires_confirmation_if_its_prediction_is_missing_or_outdated(
    state: str, dave: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted = signed_prediction(dave, "/submit", URGENT if state == "expired" else TEXT)
    form = {"document": URGENT, "step": "submit", "predicted": "" if state == "missing" else predicted}
    monkeypatch.setattr(accepted_prediction, "VALID_FOR", timedelta(0))
    question = dave.post("/submit", form, headers=HTMX)
    assert (question.status_code, question.headers.get("HX-Retarget")) == (200, "#dialog")
    assert "Submit and evict?" in question.content.decode() and "vision/low" in question.content.decode()
    assert dave.post("/submit", form | {"step": "submit-evicting"}, headers=HTMX).status_code == 204
    assert Workload.objects.filter(name="fine").exists()


@pytest.mark.usefixtures("low")
def test_page_without_scripts_submits_without_confirmation(dave: Client) -> None:
    assert dave.post("/submit", {"document": URGENT, "step": "submit"}).status_code == 302


@pytest.mark.usefixtures("low")
def test_submission_requires_confirmation_if_no_dry_run_slot_is_free(
    dave: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "dry_run", reject_dry_run)
    form = {"document": URGENT, "step": "submit", "never-starts": "1"}
    question = dave.post("/submit", form, headers=HTMX)
    assert question.headers["HX-Retarget"] == "#dialog"
    assert "Submit without prediction?" in question.content.decode()
    assert "may evict other workloads" in question.content.decode()
    assert dave.post("/submit", form | {"step": "submit-evicting"}, headers=HTMX).status_code == 204
    assert Workload.objects.filter(name="fine").exists()


@pytest.mark.usefixtures("low")
def test_edit_requires_confirmation_if_no_dry_run_slot_is_free(
    dave: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    dave.post("/submit", {"document": TEXT + "priority: 5\n", "step": "submit"})
    workload = Workload.objects.get(name="fine")
    path = f"/workloads/{workload.pk}/edit"
    text = dave.get(path).context["text"].replace("priority: 5", "priority: 50")
    monkeypatch.setattr(edit, "compare_edit", reject_dry_run)
    form = {"document": text, "version": workload.version, "step": "save"}
    assert "Save without prediction?" in dave.post(path, form, headers=HTMX).content.decode()
    assert dave.post(path, form | {"step": "save-evicting"}, headers=HTMX).status_code == 204


@pytest.mark.usefixtures("low")
def test_edit_without_a_prediction_requires_confirmation(dave: Client) -> None:
    dave.post("/submit", {"document": TEXT + "priority: 5\n", "step": "submit"})
    workload = Workload.objects.get(name="fine")
    path = f"/workloads/{workload.pk}/edit"
    text = dave.get(path).context["text"].replace("priority: 5", "priority: 50")
    form = {"document": text, "version": workload.version, "step": "save"}
    question = dave.post(path, form, headers=HTMX)
    assert question.headers.get("HX-Retarget") == "#dialog" and "vision/low" in question.content.decode()
    assert dave.post(path, form | {"step": "save-evicting"}, headers=HTMX).status_code == 204
    workload.refresh_from_db()
    assert workload.edits == 1
