"""Tests for the pages of schedules."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.utils import timezone

from projects.engine.cron_words import describe_cron
from projects.models import Schedule, Workload
from projects.services import schedules
from projects.services.schedules import ScheduleValues, submit_due_runs
from projects.services.workloads.templates import set_template
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
TEXT = "command: python train.py\nroles: [{gpu: 1}]\n"
FORM = {
    "project": "vision", "name": "nightly", "cron": "0 3 * * 1-5", "time_zone": "Europe/Berlin",
    "overlap": "queue", "template": "", "document": TEXT,
}  # fmt: skip
PAGE = "/schedules/vision/nightly"


def text(answer: Any) -> str:
    shown = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", answer.content.decode(), flags=re.DOTALL)
    return " ".join(unescape(shown).split())


def create(cast: Cast, **changes: str) -> Schedule:
    values = ScheduleValues(**{"cron": "0 3 * * 1-5", "text": TEXT, **changes})
    return schedules.set_schedule(actor=cast.dave, project=cast.vision, name="nightly", values=values)


def test_form_creates_a_schedule_and_opens_its_page(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert "No schedules yet" in text(dave.get("/schedules"))
    answer = dave.post("/schedules/new", FORM, headers=HTMX)
    assert (answer.status_code, answer["HX-Redirect"]) == (204, PAGE)
    schedule = Schedule.objects.get()
    assert (schedule.cron, schedule.overlap, schedule.text) == ("0 3 * * 1-5", "queue", TEXT)
    assert "nightly dave vision vision Weekdays at 03:00 0 3 * * 1-5 Europe/Berlin none yet" in text(
        dave.get("/schedules")
    )
    page = text(dave.get(PAGE))
    assert "Runs are submitted with the permissions of dave" in page
    assert "No runs yet" in page
    assert "python train.py" in page


def test_schedule_form_shows_the_next_runs_while_the_user_types(sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert 'hx-get="/schedules/times"' in dave.get("/schedules/new", headers=HTMX).content.decode()

    def shown(cron: str, time_zone: str = "Europe/Berlin") -> str:
        return text(dave.get("/schedules/times", {"cron": cron, "time_zone": time_zone}, headers=HTMX))

    runs = shown("0 3 * * 1")
    assert runs.startswith("Mondays at 03:00 Europe/Berlin Mon ")
    assert runs.count("03:00") == 6
    assert shown("0 25 * * *").endswith("Has an invalid hour '25'. Allowed: 0 to 23.")
    assert shown("0 3 * * 1", "Europe/Berlni").startswith("Time zone: Not a valid time zone")
    assert shown("") == "Choose when the schedule runs."


def test_schedule_form_names_the_invalid_fields(cast: Cast, sign_in: SignIn) -> None:
    values = {**FORM, "cron": "0 25 * * *", "time_zone": "Europe/Berlni", "document": "roles: [{gpus: 1}]\n"}
    answer = sign_in("dave").post("/schedules/new", values, headers=HTMX)
    assert answer.status_code == 422
    shown = text(answer)
    assert "Has an invalid hour '25'. Allowed: 0 to 23." in shown
    assert "Did you mean `Europe/Berlin`?" in shown
    assert "roles[0].gpus: Unknown key" in shown
    values |= {"name": "Not a name", "frequency": "daily", "at": "25:99", "cron": "0 26 * * *"}
    answer = sign_in("dave").post("/schedules/new", values, headers=HTMX)
    assert set(answer.context["form"].errors) == {"name", "at", "time_zone", "document"}
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("chosen", "cron"),
    [
        ({"frequency": "hourly", "minute": "15"}, "15 * * * *"),
        ({"frequency": "daily", "at": "06:05"}, "5 6 * * *"),
        ({"frequency": "weekdays", "at": "06:05"}, "5 6 * * 1-5"),
        ({"frequency": "weekly", "at": "00:00", "weekday": "0"}, "0 0 * * 0"),
        ({"frequency": "monthly", "at": "23:59", "day": "31"}, "59 23 31 * *"),
        ({"frequency": "custom", "cron": "*/5 * * * *"}, "*/5 * * * *"),
    ],
)
def test_frequency_is_converted_to_a_cron_expression_and_back(
    cast: Cast, sign_in: SignIn, chosen: dict[str, str], cron: str
) -> None:
    dave = sign_in("dave")
    assert dave.post("/schedules/new", {**FORM, "cron": "", **chosen}, headers=HTMX).status_code == 204
    assert Schedule.objects.get().cron == cron
    form = dave.get(f"{PAGE}/edit", headers=HTMX).context["form"]
    shown = {name: str(form[name].value()) for name in chosen}
    assert shown == chosen


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"frequency": "daily", "at": ""}, "at"), ({"frequency": "hourly", "minute": ""}, "minute"),
        ({"frequency": "monthly", "at": "03:00", "day": "32"}, "day"), ({"frequency": "custom"}, "cron"),
    ],
)  # fmt: skip
def test_error_for_a_missing_frequency_value_is_shown_next_to_its_field(
    cast: Cast, sign_in: SignIn, chosen: dict[str, str], field: str
) -> None:
    answer = sign_in("dave").post("/schedules/new", {**FORM, "cron": "", **chosen}, headers=HTMX)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert not Schedule.objects.exists()


def test_skipped_run_has_a_coloured_state(cast: Cast, sign_in: SignIn) -> None:
    schedule = create(cast)
    schedule.runs.create(due_at=timezone.now(), outcome="skipped", message="The previous run has not ended.")
    for page in (PAGE, "/schedules"):
        assert '<span class="chip warn">Skipped</span>' in sign_in("erin").get(page).content.decode()


@pytest.mark.heavy
def test_error_for_a_name_in_use_is_shown_next_to_the_name_field(cast: Cast, sign_in: SignIn) -> None:
    create(cast)
    answer = sign_in("dave").post("/schedules/new", FORM, headers=HTMX)
    assert answer.status_code == 422
    assert "A schedule with this name exists" in text(answer)


def test_page_shows_next_and_last_runs(cast: Cast, sign_in: SignIn) -> None:
    create(cast)
    Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=5))
    submit_due_runs(timezone.now())
    workload = Workload.objects.get()
    answer = sign_in("erin").get(PAGE)
    html = answer.content.decode()
    assert html.partition('id="next-title"')[2].partition("</ol>")[0].count("<li>") == 5
    assert f'href="/workloads/{workload.pk}"' in html
    assert "Submitted" in text(answer)
    submission = f"dave submitted workload {workload.name} in vision for schedule nightly: training, 1 GPU"
    assert submission in text(sign_in("erin").get("/activity"))
    assert 'id="action-run"' not in html
    listed = sign_in("erin").get("/schedules").content.decode()
    assert f'href="/workloads/{workload.pk}"><span class="chip warn">Pending</span></a>' in listed


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/5 * * * *", "Every 5 minutes"),
        ("30 * * * *", "Every hour at minute 30"),
        ("0 */6 * * *", "Every 6 hours"),
        ("5 3 * * *", "Daily at 03:05"),
        ("0 3 * * 1-5", "Weekdays at 03:00"),
        ("0 3 * * 1,7", "Mondays, Sundays at 03:00"),
        ("0 3 1 * *", "Monthly on day 1 at 03:00"),
        ("0 3 1 * 1", ""),
        ("0 3 * 6 *", ""),
        ("0 3,15 * * *", ""),
    ],
)
def test_cron_expressions_are_translated_to_plain_english(expression: str, words: str) -> None:
    assert describe_cron(expression) == words


@pytest.mark.heavy
def test_pages_show_when_a_failed_submission_will_be_retried(cast: Cast, sign_in: SignIn) -> None:
    create(cast)
    assert "retry" not in text(sign_in("erin").get("/schedules"))
    Schedule.objects.update(retry_at=timezone.now() + timedelta(minutes=5))
    assert "Failed. Next attempt" in text(sign_in("erin").get("/schedules"))
    assert "The last run could not be submitted" in text(sign_in("erin").get(PAGE))


@pytest.mark.heavy
def test_schedule_can_be_paused_resumed_run_and_deleted(cast: Cast, sign_in: SignIn) -> None:
    create(cast)
    dave = sign_in("dave")
    assert "Pause schedule" in text(dave.get(f"{PAGE}/pause", headers=HTMX))
    assert dave.post(f"{PAGE}/pause", headers=HTMX).status_code == 204
    page = text(dave.get(PAGE))
    assert "Paused by dave." in page
    assert "No runs until the schedule is resumed." in page
    assert "Paused by dave Resume Run now" in text(dave.get("/schedules"))
    assert dave.post(f"{PAGE}/resume", headers=HTMX).status_code == 204
    assert dave.post(f"{PAGE}/run", headers=HTMX).status_code == 204
    assert "by dave" in text(dave.get(PAGE))
    again = dave.post(f"{PAGE}/run", headers=HTMX)
    assert again.status_code == 409
    assert "nightly cannot run now The previous run has not ended" in text(again)
    assert "data-close" in again.content.decode(), "the dialog can be closed"
    assert dave.post(f"{PAGE}/delete", headers=HTMX)["HX-Redirect"] == "/schedules"
    assert not Schedule.objects.exists()


def test_edit_by_an_admin_changes_the_owner(cast: Cast, sign_in: SignIn) -> None:
    schedule = create(cast)
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    carol = sign_in("carol")
    assert "You become the owner, and runs use your permissions." in text(
        carol.get(f"{PAGE}/edit", headers=HTMX)
    )
    values = {**FORM, "document": "", "template": "train", "version": str(schedule.version)}
    assert carol.post(f"{PAGE}/edit", values, headers=HTMX).status_code == 204
    schedule.refresh_from_db()
    assert (schedule.owner, schedule.template, schedule.text) == (cast.carol.user, "train", "")
    stale = carol.post(f"{PAGE}/edit", values | {"cron": "@daily"}, headers=HTMX)
    assert "changed since you read it" in text(stale)


@pytest.mark.heavy
def test_fields_of_the_unselected_workload_source_are_not_saved(cast: Cast, sign_in: SignIn) -> None:
    schedule = create(cast)
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    dave = sign_in("dave")
    values = {**FORM, "template": "train", "source": "template", "version": str(schedule.version)}
    assert dave.post(f"{PAGE}/edit", values, headers=HTMX).status_code == 204
    schedule.refresh_from_db()
    assert (schedule.template, schedule.text) == ("train", "")
    values |= {"source": "document", "version": str(schedule.version)}
    assert dave.post(f"{PAGE}/edit", values, headers=HTMX).status_code == 204
    schedule.refresh_from_db()
    assert (schedule.template, schedule.text) == ("", TEXT)


def options(answer: Any) -> list[str]:
    return re.findall(r'<option value="[^"]*"[^>]*>([^<]+)</option>', answer.content.decode())


def template_field(answer: Any) -> str:
    return str(answer.content.decode().partition('name="template"')[2].partition("</select>")[0])


@pytest.mark.heavy
def test_schedule_form_offers_the_templates_of_the_chosen_project(cast: Cast, sign_in: SignIn) -> None:
    for project, name in ((cast.vision, "train"), (cast.vision, "evaluate"), (cast.speech, "transcribe")):
        set_template(actor=cast.bob, project=project, name=name, text=TEXT)
    bob = sign_in("bob")
    path = "/schedules/templates"
    assert options(bob.get(path, {"project": "vision"})) == ["Choose a template", "evaluate", "train"]
    assert options(bob.get(path, {"project": "speech"})) == ["Choose a template", "transcribe"]
    assert sign_in("dave").get(path, {"project": "speech"}).status_code == 404
    form = bob.get("/schedules/new", {"project": "vision", "template": "train"}, headers=HTMX)
    assert '<option value="vision" selected>' in form.content.decode()
    assert '<option value="train" selected>' in template_field(form)
    assert f'hx-get="{path}"' in form.content.decode()
    wrong = {**FORM, "source": "template", "template": "transcribe"}
    answer = bob.post("/schedules/new", wrong, headers=HTMX)
    assert answer.status_code == 422
    assert '"transcribe" is not available. Choose one of evaluate, train.' in text(answer)


def test_template_pages_list_the_schedules_that_use_the_template(cast: Cast, sign_in: SignIn) -> None:
    for name in ("train", "unused"):
        set_template(actor=cast.dave, project=cast.vision, name=name, text=TEXT)
    create(cast, text="", template="train")
    dave, link = sign_in("dave"), f'<a href="{PAGE}">nightly</a>'
    assert dave.get("/templates").content.decode().count(link) == 1
    assert link in dave.get("/templates/vision/train/edit").content.decode()
    assert link not in dave.get("/templates/vision/unused/edit").content.decode()
    assert "dave · template train" in text(dave.get("/schedules"))


def test_template_in_use_cannot_be_deleted_and_the_dialog_links_to_its_schedules(
    cast: Cast, sign_in: SignIn
) -> None:
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    create(cast, text="", template="train")
    dave, to = sign_in("dave"), "/templates/vision/train/delete"
    dialog = dave.get(to, headers=HTMX).content.decode()
    assert "Template vision/train is in use" in dialog
    assert f'<a href="{PAGE}">nightly</a>' in dialog
    assert "Delete template" not in dialog
    assert dave.post(to, headers=HTMX).status_code == 409
    assert cast.vision.templates.exists()


def test_schedule_with_a_missing_template_is_marked_and_cannot_run(cast: Cast, sign_in: SignIn) -> None:
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    create(cast, text="", template="train")
    cast.vision.templates.all().delete()
    dave = sign_in("dave")
    rows = text(dave.get("/schedules"))
    assert "Template missing runs are rejected Edit Pause" in rows, "neither a next run nor Run now"
    page = dave.get(PAGE)
    assert "Template missing Template train no longer exists, so every run is rejected." in text(page)
    assert "No workloads are submitted until" in text(page)
    assert "action-run" not in page.content.decode()
    for answer in (dave.get(f"{PAGE}/run", headers=HTMX), dave.post(f"{PAGE}/run", headers=HTMX)):
        assert "nightly cannot run now Template train no longer exists." in text(answer)
        assert f'href="{PAGE}/edit">Edit schedule</a>' in answer.content.decode()


@pytest.mark.heavy
def test_schedule_form_states_that_the_project_has_no_templates(cast: Cast, sign_in: SignIn) -> None:
    answer = sign_in("dave").get("/schedules/templates", {"project": "vision"})
    assert options(answer) == ["No templates in vision"]


@pytest.mark.heavy
def test_schedule_form_marks_a_deleted_template(cast: Cast, sign_in: SignIn) -> None:
    set_template(actor=cast.dave, project=cast.vision, name="train", text=TEXT)
    schedule = create(cast, text="", template="train")
    cast.vision.templates.all().delete()
    dave = sign_in("dave")
    form = dave.get(f"{PAGE}/edit", headers=HTMX)
    assert '<option value="train" selected>train (deleted)</option>' in template_field(form)
    values = {**FORM, "source": "template", "template": "train", "version": str(schedule.version)}
    answer = dave.post(f"{PAGE}/edit", values, headers=HTMX)
    assert (answer.status_code, "Does not exist" in text(answer)) == (422, True)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "template"}, "Choose a template."),
        ({"source": "document", "document": " \n"}, "Enter a workload document."),
    ],
)
def test_error_for_a_missing_workload_is_shown_next_to_the_visible_field(
    cast: Cast, sign_in: SignIn, values: dict[str, str], message: str
) -> None:
    answer = sign_in("dave").post("/schedules/new", {**FORM, **values}, headers=HTMX)
    assert answer.status_code == 422
    page = text(answer)
    assert message in page
    assert "needs a document or a template" not in page
    assert not Schedule.objects.exists()


def test_schedule_page_and_actions_require_a_role(cast: Cast, sign_in: SignIn) -> None:
    create(cast)
    assert sign_in("grace").get(PAGE).status_code == 404
    assert "nightly" not in text(sign_in("grace").get("/schedules"))
    for step in ("pause", "run", "delete"):
        assert sign_in("erin").post(f"{PAGE}/{step}", headers=HTMX).status_code == 403
        assert sign_in("grace").post(f"{PAGE}/{step}", headers=HTMX).status_code == 404
    assert sign_in("erin").get(f"{PAGE}/edit", headers=HTMX).status_code == 403


def test_list_shows_the_latest_runs_and_why_the_last_one_was_skipped(cast: Cast, sign_in: SignIn) -> None:
    schedule, now = create(cast, overlap="skip"), timezone.now()
    outcomes = ["submitted"] * 6 + ["rejected", "skipped"]
    for number, outcome in enumerate(outcomes):
        message = "The previous run, nightly, had not ended." if outcome == "skipped" else ""
        due_at = now - timedelta(days=len(outcomes) - number)
        schedule.runs.create(due_at=due_at, outcome=outcome, message=message)
    page = sign_in("dave").get("/schedules").content.decode()
    assert (
        f'The previous run, nightly, had not ended. <a class="nowrap" href="{PAGE}#runs-title">Show runs'
        in page
    )
    dots = re.findall(r'<i class="(\w*)" title="(\w+), ', page)
    assert [title for _, title in dots] == ["Submitted", "Submitted", "Submitted", "Rejected", "Skipped"]
    assert [tone for tone, _ in dots] == ["good", "good", "good", "bad", "warn"]


def test_schedule_list_is_filtered_by_project(cast: Cast, sign_in: SignIn) -> None:
    create(cast)
    values = ScheduleValues(cron="0 3 * * *", text=TEXT)
    schedules.set_schedule(actor=cast.alice, project=cast.ads, name="report", values=values)
    alice = sign_in("alice")
    assert "report" in text(alice.get("/schedules")) and "nightly" in text(alice.get("/schedules"))
    only = text(alice.get("/schedules?project=ads"))
    assert "report" in only and "nightly" not in only
    assert "No schedules match these filters." in text(alice.get("/schedules?project=speech"))


def test_form_offers_time_zones_by_region(cast: Cast, sign_in: SignIn) -> None:
    page = sign_in("dave").get("/schedules/new").content.decode()
    assert '<optgroup label="Europe">' in page and '<option value="Europe/Berlin"' in page
    assert "US/Eastern" not in page
