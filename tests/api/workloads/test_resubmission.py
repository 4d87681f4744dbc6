"""Tests for submitting ended workloads again over REST."""

from typing import Any

import pytest

from projects.models import Audit, Workload
from projects.services import arrays, sessions
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training

pytestmark = pytest.mark.django_db(transaction=True)


def ended(cast: Cast, name: str = "train", phase: str = "failed", **columns: Any) -> Workload:
    return make.workload(cast.vision, name, by=cast.carol.user, phase=phase, **columns)


def resubmit(caller: Caller, workload: Workload, **headers: str) -> Any:
    return caller.post(f"workloads/{workload.pk}/resubmit", **headers)


@pytest.mark.parametrize("phase", ["failed", "completed", "cancelled"])
@pytest.mark.every_case
def test_ended_workload_is_resubmitted_with_the_same_document(cast: Cast, dave: Caller, phase: str) -> None:
    workload = ended(cast, phase=phase)
    answer = resubmit(dave, workload)
    assert answer.status_code == 201
    new = answer.json()
    assert (new["name"], new["project"], new["phase"], new["submitted_by"]) == (
        "train-2", "vision", "pending", "dave",
    )  # fmt: skip
    assert answer["Location"] == f"/api/v1/workloads/{new['id']}"
    assert new["spec"]["command"] == workload.spec["command"]
    assert new["spec"]["roles"][0]["gpu"] == 1
    (event,) = dave.get(f"workloads/{new['id']}/events").json()["items"]
    assert event["message"].startswith("Resubmitted from train by dave.")
    (entry,) = Audit.objects.filter(action="submit")
    assert (entry.actor, entry.object_name) == ("dave", "train-2")
    assert Workload.objects.get(pk=workload.pk).phase == phase, "the ended workload stays"


def test_new_workload_gets_the_next_free_name(cast: Cast, dave: Caller) -> None:
    first = ended(cast)
    names = [resubmit(dave, first).json()["name"] for _ in range(2)]
    assert names == ["train-2", "train-3"]
    Workload.objects.filter(name="train-2").update(phase="failed", ended_at=make.ago())
    assert resubmit(dave, Workload.objects.get(name="train-2")).json()["name"] == "train-4"
    assert resubmit(dave, ended(cast, "resnet-50")).json()["name"] == "resnet-50-2", "50 belongs to the name"
    document = {**training("sweep-2", array={"tasks": 1}), "project": "vision"}
    arrays.submit(actor=cast.dave, document=document)
    assert resubmit(dave, ended(cast, "sweep")).json()["name"] == "sweep-3", "an array has the name"
    assert resubmit(dave, ended(cast, "a" * 63)).json()["name"] == "a" * 61 + "-2"


def test_repeated_request_with_the_same_key_submits_once(cast: Cast, dave: Caller) -> None:
    workload = ended(cast)
    first, second = (resubmit(dave, workload, Idempotency_Key="again") for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    assert Workload.objects.filter(name__startswith="train-").count() == 1


def test_live_workloads_array_tasks_and_sessions_cannot_be_resubmitted(cast: Cast, dave: Caller) -> None:
    live = make.workload(cast.vision, "live", by=cast.dave.user, phase="running")
    answer = resubmit(dave, live)
    assert (answer.status_code, answer.json()["detail"]) == (
        409, "This workload has not ended (running). Cancel it first, or submit a copy.",
    )  # fmt: skip
    document = {**training("sweep", array={"tasks": 1}), "project": "vision"}
    task = arrays.submit(actor=cast.dave, document=document).array.tasks.get()
    assert "Run `berth retry sweep-0`" in resubmit(dave, task).json()["detail"]
    wanted = sessions.SessionSettings("http://testserver", "process", 1, 3, 600, "3.11.7", "3.1.2")
    session = sessions.open_session(
        actor=cast.dave,
        document={"name": "notebook", "project": "vision", "pools": ["local"]},
        settings=wanted,
    )
    Workload.objects.filter(pk=session.pk).update(phase="completed", ended_at=make.ago())
    assert "Open a new session." in resubmit(dave, session.workload).json()["detail"]
    assert Workload.objects.count() == 3


def test_document_that_is_no_longer_valid_is_rejected_with_its_errors(cast: Cast, dave: Caller) -> None:
    workload = ended(cast)
    Workload.objects.filter(pk=workload.pk).update(spec={**workload.spec, "pools": ["gone"]})
    answer = resubmit(dave, workload)
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["pools[0]"]


def test_viewers_may_not_resubmit(cast: Cast, erin: Caller) -> None:
    assert resubmit(erin, ended(cast)).status_code == 403
