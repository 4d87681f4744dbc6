"""Tests for the prediction of a resubmission."""

import pytest
from django.test import Client

from berth.core.errors import RateLimited
from projects.models import Workload
from scheduler.web.submit import resubmission
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.submit.test_accepted_predictions import STARTS, TITLE, text_of
from tests.web.submit.test_submission_page import HTMX

IN_DIALOG = {**HTMX, "HX-Target": "dialog"}


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    make.node(cast.pool, gpus=4)
    make.quota(cast.research, cast.pool, 8)
    make.quota(cast.vision, cast.pool, 8)
    return sign_in("dave")


def failed(cast: Cast) -> Workload:
    return make.workload(cast.vision, "train", phase="failed", run=1, replicas=2, priority=70)


def resubmit(client: Client, workload: Workload, step: str = "") -> Workload | None:
    client.post(f"/workloads/{workload.pk}/resubmit", {"step": step}, headers=HTMX)
    return Workload.objects.filter(name="train-2").first()


def test_resubmitted_workload_shows_its_prediction_until_the_first_cycle(cast: Cast, dave: Client) -> None:
    new = resubmit(dave, failed(cast))
    assert new is not None
    shown = text_of(dave, new)
    assert TITLE in shown and STARTS in shown


@pytest.fixture
def low(cast: Cast, dave: Client) -> Workload:
    """Return a running workload that the resubmission would evict."""
    low = make.workload(
        cast.vision, "low", phase="running", run=1, pool=cast.pool, priority=10, started_at=make.ago(hours=1),
        replicas=4,
    )  # fmt: skip
    for index in range(4):
        make.place(low, cast.pool.nodes.get(), [index], index=index)
    return low


@pytest.mark.heavy
@pytest.mark.usefixtures("low")
def test_resubmission_that_would_evict_workloads_requires_confirmation(cast: Cast, dave: Client) -> None:
    workload = failed(cast)
    question = dave.post(f"/workloads/{workload.pk}/resubmit", headers=IN_DIALOG)
    assert question.headers["HX-Reswap"] == "innerHTML" and "HX-Retarget" not in question.headers
    assert "Resubmit and evict?" in question.content.decode() and "vision/low" in question.content.decode()
    assert not Workload.objects.filter(name="train-2").exists()
    new = resubmit(dave, workload, "resubmit-evicting")
    assert new is not None and "Would start and evict 1 other workload." in text_of(dave, new)


@pytest.mark.usefixtures("low")
def test_eviction_warning_does_not_replace_the_confirmation_form(cast: Cast, dave: Client) -> None:
    question = dave.post(f"/workloads/{failed(cast).pk}/resubmit", headers=HTMX)
    assert (question.headers["HX-Retarget"], question.headers["HX-Reswap"]) == ("#dialog", "innerHTML")


@pytest.mark.usefixtures("low")
def test_resubmitting_a_selected_workload_requires_confirmation_if_it_would_evict_others(
    cast: Cast, dave: Client
) -> None:
    workload = failed(cast)
    form = {"w": [str(workload.pk)]}
    question = dave.post("/workloads/resubmit", form, headers=IN_DIALOG, follow=True)
    page = question.content.decode()
    assert "Resubmit and evict?" in page and f'hx-post="/workloads/{workload.pk}/resubmit"' in page
    assert not Workload.objects.filter(name="train-2").exists()


def test_resubmission_requires_confirmation_if_no_dry_run_slot_is_free(
    cast: Cast, dave: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(**_: object) -> None:
        raise RateLimited(2, "vision already has the maximum of 3 dry runs in progress. Try again in 2 s.")

    monkeypatch.setattr(resubmission, "dry_run", reject)
    workload = failed(cast)
    question = dave.post(f"/workloads/{workload.pk}/resubmit", headers=IN_DIALOG)
    assert "Resubmit without prediction?" in question.content.decode()
    assert not Workload.objects.filter(name="train-2").exists()
    new = resubmit(dave, workload, "resubmit-evicting")
    assert new is not None and TITLE not in text_of(dave, new)
