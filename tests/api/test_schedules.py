"""Tests for schedules over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from projects.models import Audit, Schedule, Workload
from projects.services.schedules import submit_due_runs
from projects.services.workloads.templates import set_template
from tests.api.conftest import Caller
from tests.cast import Cast

PATH = "projects/vision/schedules/nightly"
DOCUMENT = {"command": "python train.py", "roles": [{"gpu": 1}]}
BODY = {"cron": "0 3 * * 1-5", "time_zone": "Europe/Berlin", "document": DOCUMENT}
NEW, ANY = {"If-None-Match": "*"}, {"If-Match": "*"}


def put(caller: Caller, body: dict[str, Any], headers: dict[str, str] = NEW, path: str = PATH) -> Any:
    return caller("PUT", path, body, headers=headers)


def problem(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    (rejection,) = answer.json()["errors"]
    return rejection


def test_schedule_is_created_with_its_next_runs(cast: Cast, dave: Caller) -> None:
    answer = put(dave, BODY)
    created = answer.json()
    assert (answer.status_code, answer["Location"]) == (201, f"/api/v1/{PATH}")
    assert (created["owner"], created["overlap"], created["template"]) == ("dave", "skip", None)
    assert len(created["next_runs"]) == 5
    assert created["next_runs"][0] == created["next_at"]
    assert "python train.py" in created["text"]
    assert dave.get(PATH).json()["cron"] == "0 3 * * 1-5"
    assert [row["name"] for row in dave.get("schedules", project="vision").json()["items"]] == ["nightly"]
    (entry,) = Audit.objects.filter(action="set_schedule")
    assert entry.after is not None
    assert (entry.object_name, entry.after["cron"]) == ("vision/nightly", "0 3 * * 1-5")


@pytest.mark.parametrize(
    ("change", "path", "message", "allowed"),
    [
        ({"cron": "0 3 * *"}, "cron", "has 4 fields instead of 5", "such as 0 3 * * 1-5"),
        ({"cron": "0 25 * * *"}, "cron", "has an invalid hour", "0 to 23"),
        ({"cron": "0 3 * * fry"}, "cron", "has an invalid day-of-week", "0 to 7"),
        ({"cron": "0 3 0 * *"}, "cron", "has an invalid day-of-month", "1 to 31"),
        ({"cron": "0 3 30 2 *"}, "cron", "never fires", "a day that exists in one of the months"),
        ({"cron": "0 3 31 4,6 *"}, "cron", "never fires", "a day that exists"),
        ({"time_zone": "Europe/Berlni"}, "time_zone", "is not a valid time zone", "`Europe/Berlin`"),
        ({"time_zone": "berlin"}, "time_zone", "is not a valid time zone", "`Europe/Berlin`"),
        ({"time_zone": "../../etc/passwd"}, "time_zone", "is not a valid time zone", "Europe/Berlin"),
        ({"overlap": "quue"}, "overlap", "is not an allowed value", "queue"),
        ({"document": {**DOCUMENT, "roles": [{"gpus": 1}]}}, "document.roles[0].gpus", "unknown key", "gpu"),
        ({"document": {**DOCUMENT, "pools": ["none"]}}, "document.pools[0]", "does not exist", "local"),
        ({"document": {**DOCUMENT, "project": "ads"}}, "document.project", "names another project", "vision"),
        ({"document": {**DOCUMENT, "kind": "service", "service": {}}}, "document", "", ""),
        ({"document": None}, "document", "needs one source", "one of document, text, template"),
        ({"template": "train"}, "document", "needs one source", "one of document, text, template"),
        ({"document": None, "template": "trian"}, "template.template", "does not exist", "`train`"),
    ],
)
def test_error_names_the_invalid_schedule_value(
    cast: Cast, dave: Caller, change: dict[str, Any], path: str, message: str, allowed: str
) -> None:
    set_template(actor=cast.dave, project=cast.vision, name="train", text="command: a\nroles: [{gpu: 1}]\n")
    answer = put(dave, {**BODY, **change})
    assert answer.status_code == 422
    rejections = answer.json()["errors"]
    rejection = rejections[0]
    assert rejection["path"].startswith(path.removeprefix("template."))
    assert message in rejection["message"]
    assert allowed in rejection["allowed"]
    assert not Schedule.objects.exists()


@pytest.mark.heavy
def test_due_run_appears_in_the_list_of_runs(cast: Cast, dave: Caller) -> None:
    put(dave, BODY)
    due = timezone.now() - timedelta(seconds=10)
    Schedule.objects.update(next_at=due)
    assert submit_due_runs(timezone.now()) == 1
    (run,) = dave.get(f"{PATH}/runs").json()["items"]
    workload = Workload.objects.get()
    assert (run["outcome"], run["workload"], run["workload_id"]) == ("submitted", "nightly", str(workload.pk))
    assert (run["phase"], run["started_by"]) == ("pending", None)


def test_manual_run_is_rejected_while_another_run_is_live(cast: Cast, dave: Caller, carol: Caller) -> None:
    put(dave, BODY)
    before = Schedule.objects.get().next_at
    answer = carol.post(f"{PATH}/run")
    assert (answer.status_code, answer.json()["started_by"]) == (201, "carol")
    assert Workload.objects.get().submitted_by == cast.carol.user
    again = carol.post(f"{PATH}/run")
    assert again.status_code == 409
    assert "The previous run has not ended. Cancel nightly first" in again.json()["detail"]
    assert Schedule.objects.get().next_at == before


def test_paused_schedule_has_no_next_run_until_it_is_resumed(cast: Cast, dave: Caller) -> None:
    put(dave, BODY)
    paused = dave.post(f"{PATH}/pause").json()
    assert (paused["next_at"], paused["next_runs"], paused["pause_message"]) == (None, [], "Paused by dave.")
    assert dave.post(f"{PATH}/pause").status_code == 200
    resumed = dave.post(f"{PATH}/resume").json()
    assert (resumed["paused_at"], len(resumed["next_runs"])) == (None, 5)
    assert [row.action for row in Audit.objects.order_by("pk") if row.object_type == "schedule"] == [
        "set_schedule", "pause_schedule", "resume_schedule",
    ]  # fmt: skip


def test_user_who_edits_a_schedule_becomes_its_owner(cast: Cast, dave: Caller, carol: Caller) -> None:
    put(dave, BODY)
    answer = put(carol, {**BODY, "cron": "@daily"}, ANY)
    assert (answer.status_code, answer.json()["owner"], answer.json()["cron"]) == (200, "carol", "0 0 * * *")
    assert put(dave, BODY, ANY).status_code == 403
    entry = Audit.objects.filter(action="set_schedule").latest("pk")
    assert entry.before == {"cron": "0 3 * * 1-5", "owner": "dave"}


@pytest.mark.heavy
def test_stale_schedule_edit_is_rejected(cast: Cast, dave: Caller) -> None:
    first = put(dave, BODY)
    assert put(dave, BODY).status_code == 412
    assert put(dave, {**BODY, "overlap": "queue"}, {"If-Match": first["ETag"]}).status_code == 200
    assert put(dave, {**BODY, "overlap": "skip"}, {"If-Match": first["ETag"]}).status_code == 412
    assert dave("DELETE", PATH, headers=ANY).status_code == 204
    assert dave.get(PATH).status_code == 404


@pytest.mark.heavy
def test_error_for_a_missing_schedule_suggests_the_nearest_name(cast: Cast, dave: Caller) -> None:
    put(dave, BODY)
    answer = dave.get("projects/vision/schedules/nighty")
    assert answer.status_code == 404
    assert "Did you mean `nightly`?" in answer.json()["detail"]
