"""Tests that every change over REST writes an audit row that names the user."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from projects.models import Audit
from projects.selectors import audit
from projects.services import workloads
from projects.services.people import views
from tests.api.conftest import Caller
from tests.api.isolation_matrix import MATRIX
from tests.api.one_of_each import Scene
from tests.cast import training

WRITES = ("POST", "PUT", "PATCH", "DELETE")
WRITES_WITHOUT_CHANGE = {
    "quotas/preview": "only a dry run",
    "quota-groups/pair/preview": "only a dry run",
    "sessions/{session}/calls": "the data of a session is not audited",
    "sessions/{session}/calls/drop": "the data of a session is not audited",
    "projects/vision/code/chunks": "the submission that uses the code is audited",
    "projects/vision/code/tree": "the submission that uses the code is audited",
    "workloads:smallest-change": "only a dry run",
    "workloads/cancel": "the matrix names no existing workload",
}
CALLS_WITHOUT_EFFECT = {
    "arrays/{array}/resume": "no task is suspended",
    "arrays/{array}/retry": "no task has failed",
    "workloads/{workload}/files": "no pod has failed",
    "workloads/{workload}/resume": "the workload is not suspended",
    "node-pools/local/resume": "the pool is not paused",
    "users/dave/activate": "the user is not deactivated",
    "projects/vision/schedules/weekly/resume": "the schedule is not paused",
    "services/chat/scale_out": "the service already has this many engines",
    "services/chat/scale_in": "the service has no more engines than requested",
    "services/chat/scale_out_cancel": "no scale-out is in progress",
    "services/chat/autoscaler/enable": "the autoscaler is already enabled",
}
# The matrix sends the text that these templates already have; it also creates one and deletes these.
SAME_VALUES = {("PUT", f"projects/vision/templates/{name}") for name in ("nightly", "carols")}
CHANGES = [
    (method, path, body, headers)
    for method, path, body, headers, answers in MATRIX
    if method in WRITES
    and answers.startswith("2")
    and path not in WRITES_WITHOUT_CHANGE | CALLS_WITHOUT_EFFECT
    and (method, path) not in SAME_VALUES
]


@pytest.mark.every_case
@pytest.mark.parametrize("case", CHANGES, ids=lambda case: f"{case[0]} {case[1]}")
def test_every_rest_write_creates_an_audit_row(
    scene: Scene, db: None, case: tuple[str, str, Any, Any]
) -> None:
    method, path, body, headers = case
    before = Audit.objects.count()
    answer = scene.callers["alice"](method, path.format(**scene.named), body, headers=headers)
    assert answer.status_code in (200, 201, 204)
    assert Audit.objects.count() > before
    assert set(Audit.objects.order_by("id")[before:].values_list("actor", flat=True)) == {"alice"}


def submissions(reader: Caller, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.get("audit?action=submit").json()["items"]
    return [row for row in rows if row["object_name"] == name]


def test_submission_is_audited_and_visible_to_project_admins(scene: Scene, db: None) -> None:
    callers = scene.callers
    made = callers["dave"].post("workloads", training("night", project="vision")).json()
    for reader, count in (("carol", 1), ("alice", 1), ("grace", 0)):
        assert len(submissions(callers[reader], "night")) == count, reader
    (row,) = submissions(callers["alice"], "night")
    assert (row["actor"], row["object_name"], row["object_id"]) == ("dave", "night", made["id"])
    assert (row["after"]["phase"], row["after"]["kind"], row["after"]["gpus"]) == ("pending", "training", 2)


def test_rejected_submission_creates_no_audit_row(scene: Scene, db: None) -> None:
    before = Audit.objects.count()
    assert scene.callers["erin"].post("workloads", training("night", project="vision")).status_code == 403
    assert scene.callers["dave"].post("workloads", {"name": "night", "project": "vision"}).status_code == 422
    assert Audit.objects.count() == before


def test_submission_query_count_does_not_grow_with_replicas(scene: Scene, db: None) -> None:
    counts = []
    for replicas in (2, 1, 500):
        document = training(f"gang-{replicas}", roles=[{"name": "worker", "replicas": replicas, "gpu": 1}])
        with CaptureQueriesContext(connection) as queries:
            workloads.submit(actor=scene.cast.dave, project=scene.cast.vision, document=document)
        counts.append(len(queries))
    assert counts[1] == counts[2], "the first submission also reads the user's roles"


def test_audit_rows_of_saved_views_are_visible_only_to_platform_admins(scene: Scene, db: None) -> None:
    view = views.save_view(actor=scene.cast.dave, name="mine", query="state=running")
    views.remove_view(actor=scene.cast.dave, view=view)
    rows = (
        audit(scene.cast.alice).filter(object_type="savedview").values_list("actor", "action", "object_name")
    )
    assert list(rows) == [("dave", "delete", "mine"), ("dave", "save", "mine")]
    assert not audit(scene.cast.carol).filter(object_type="savedview").exists()
