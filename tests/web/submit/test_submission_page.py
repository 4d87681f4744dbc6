"""Tests for the submission page: errors, verdicts and submissions."""

import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from berth.core.values.priorities import DEFAULT, SERVICE_DEFAULT
from berth.documents import read_document
from projects.models import Workload
from projects.services import workloads
from projects.services.workloads.prediction import Prediction
from scheduler.web.submit.document_presets import EXAMPLES
from scheduler.web.submit.form.draft import PREFIX
from scheduler.web.submit.verdict import build_verdict
from scheduler.web.workloads.details import Obstacle
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


def refresh_form(client: Client, document: str, **more: Any) -> Any:
    return client.post(
        "/submit", {"document": document, "agreed": document, "step": "look", **more}, headers=HTMX
    )


def field_error(answer: Any, path: str) -> str:
    ident = "f-" + re.sub(r"[^a-z0-9_]+", "-", path).strip("-")
    match = re.search(rf'id="{ident}-error">(.*?)</span></span>', answer.content.decode(), re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "", match[1])) if match else ""


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


@pytest.mark.parametrize(
    ("was", "now", "path", "words"),
    [
        ("gpu: 1", "gpu: 1.5", "roles[0].gpu", "Enter a whole number up to 1024, or a fraction such as 0.5."),
        ("replicas: 2", "min: 4, max: 2", "roles[0].at_least", "Must be at most Max replicas (2)."),
        (
            "name: worker",
            "name: My Role",
            "roles[0].name",
            "digits and hyphens, for example my-role. Use my-role",
        ),
        (
            "name: fine",
            "name: Not Fine",
            "name",
            "digits and hyphens, for example not-fine. Use not-fine",
        ),
        ("name: fine", "name: taken", "name", "Already in use. taken-2 is free. Use taken-2"),
        ("project: vision", "project: ads", "project", "Does not exist. Allowed: the name"),
        ("pools: [local]", "pools: [moon]", "pools", "Does not exist. Allowed: local"),
        ("name: fine", "name: fine\nkind: elastc", "kind", "value. Did you mean elastic? Use elastic"),
        ("name: fine", "name: fine\npriority: hgih", "priority", "priority. Did you mean high? Use high"),
        ("name: fine", "name: fine\nmax_runtime: 8 hurs", "max_runtime", "duration. Did you mean 8h? Use 8h"),
        ("name: fine", "name: fine\nmax_runtime: soon", "max_runtime", "for example 30m, 8h or 7d."),
        ("name: fine", "name: fine\nmax_runtime: 1 month", "max_runtime", "for example 30m, 8h or 7d."),
        ("name: fine", "name: fine\nmax_runtime: 1h30m", "max_runtime", "for example 30m, 8h or 7d."),
        ("gpu: 1", "memory_mib: 4 Gigs", "roles[0].memory_mib", "Did you mean 4 GiB? Use 4 GiB"),
        ("command: sleep 1", "", "command", "Enter a command."),
        ("gpu: 1}", "gpu: 1}\noutputs: [a, ../b]", "outputs", "Outside the pod's directory. Enter a"),
        ("gpu: 1}", "gpu: 1}\noutputs: [a, a]", "outputs", "Allowed: distinct paths"),
    ],
)
def test_error_is_shown_on_its_field_and_line(
    cast: Cast, dave: Client, was: str, now: str, path: str, words: str
) -> None:
    make.workload(cast.vision, "taken")
    text = (
        "name: fine\nproject: vision\npools: [local]\ncommand: sleep 1\n"
        "roles:\n  - {name: worker, replicas: 2, gpu: 1}\n"
    )
    document = text.replace(was, now)
    answer = refresh_form(dave, document)
    assert answer.status_code == 200
    assert words.lower() in field_error(answer, path).lower()
    line = next((n for n, each in enumerate(document.split("\n"), 1) if now and now in each), None)
    assert line is None or f'data-line="{line}"' in answer.content.decode()
    assert 'aria-invalid="true"' in answer.content.decode()


def test_viewer_sees_an_error_on_the_project_field(sign_in: SignIn, cast: Cast) -> None:
    document = "name: x\nproject: vision\ncommand: a\nroles: [{replicas: 1}]\n"
    assert "does not allow you to submit" in field_error(refresh_form(sign_in("erin"), document), "project")


def test_submission_uses_the_form_values(cast: Cast, dave: Client) -> None:
    text = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    typed = {PREFIX + "name": "renamed", PREFIX + "roles[0].gpu": "0.5"}
    sent_form = {"document": text, "agreed": text, "step": "submit", **typed}
    assert dave.post("/submit", sent_form, headers=HTMX).headers["HX-Redirect"].startswith("/workloads/")
    made = Workload.objects.get()
    assert (made.name, made.gpu_milli_min) == ("renamed", 500)


@pytest.mark.parametrize(("section", "page"), [("", "workloads"), ("service: {model_name: m}\n", "services")])
def test_submission_redirects_to_an_existing_page(cast: Cast, dave: Client, section: str, page: str) -> None:
    text = f"name: chat\nkind: service\ncommand: serve\n{section}roles: [{{name: engine, gpu: 1}}]\n"
    answer = dave.post("/submit", {"document": text, "step": "submit"}, headers=HTMX)
    assert answer.status_code == 204, answer.content.decode()
    address = answer.headers["HX-Redirect"]
    assert address.startswith(f"/{page}/")
    assert dave.get(address).status_code == 200


def test_prediction_is_loaded_separately_and_stores_nothing(cast: Cast, dave: Client) -> None:
    make.quota(cast.vision, cast.pool, 4)
    document = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    assert 'hx-post="/submit/prediction"' in refresh_form(dave, document).content.decode()
    prediction = dave.post("/submit/prediction", {"document": document}, headers=HTMX).content.decode()
    assert "Would start after 1 node has booted" in prediction
    make.node(cast.pool)
    prediction = dave.post("/submit/prediction", {"document": document}, headers=HTMX).content.decode()
    assert "Would start immediately" in prediction
    assert not Workload.objects.exists()
    assert dave.get("/submit/prediction").status_code == 405


def test_prediction_shows_the_gpus_of_an_elastic_workload_as_a_range(cast: Cast, dave: Client) -> None:
    document = (
        "name: fine\nproject: vision\ncommand: sleep 1\nkind: elastic\n"
        "roles: [{name: worker, min: 8, max: 16, gpu: 1}]\n"
    )
    page = dave.post("/submit/prediction", {"document": document}, headers=HTMX).content.decode()
    assert "Predicted for 8 to 16 GPUs at priority 50 (default)." in page
    fixed = dave.post("/submit/prediction", {"document": document.replace("16", "8")}, headers=HTMX)
    assert "Predicted for 8 GPUs at priority 50 (default)." in fixed.content.decode()


@pytest.mark.heavy
def test_prediction_states_that_the_workload_starts_after_a_node_has_booted(cast: Cast, dave: Client) -> None:
    make.quota(cast.vision, cast.pool, 4)
    document = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    page = dave.post("/submit/prediction", {"document": document}, headers=HTMX).content.decode()
    assert "Would start after 1 node has booted</h2>" in page
    assert 'class="card verdict info"' in page
    assert page.count("<strong>Waiting for scale up.</strong>") == page.count("<strong>") == 1
    assert "Would start after 1 node has booted<span" in page
    reason = "No node of pool local has booted yet, so the boot time is unknown."
    assert f'<dt>Expected start</dt><dd class="wrap">{reason}</dd>' in unescape(page)


def test_decisive_reason_is_shown_and_other_reasons_are_collapsed() -> None:
    capacity = {"reason": "WaitingForCapacity", "message": "2 GPUs missing.", "numbers": {}}
    share = {"reason": "WouldExceedFairShare", "message": "Over its share.", "numbers": {}}
    reclaim = {"reason": "NoReclaimableResources", "message": "No GPU can be reclaimed.", "numbers": {}}
    verdict = build_verdict(
        Prediction("would_stay_pending", {}, blockers=[share, capacity, reclaim], queue_position=3)
    )
    assert (verdict.title, verdict.tone) == ("Would be queued", "warn")
    assert (verdict.title, verdict.reason) == ("Would be queued", "Would exceed fair share. Over its share.")
    assert verdict.decisive == Obstacle("WouldExceedFairShare", "Over its share.", [])
    assert [obstacle.message for obstacle in verdict.others] == ["2 GPUs missing."]


def test_verdict_begins_with_the_reason_label_and_contains_every_message() -> None:
    numbers = {"resource": "gpu", "requested": 6000, "free": 4000}
    shortage = {"reason": "WaitingForCapacity", "message": "Needs 6 GPUs, 4 are free.", "numbers": numbers}
    reclaim = {"reason": "NoReclaimableResources", "message": "No GPU can be reclaimed.", "numbers": {}}
    reasons = [
        build_verdict(Prediction("would_stay_pending", {}, blockers=blockers)).reason
        for blockers in ([shortage], [shortage, reclaim])
    ]
    sentence = "Waiting for capacity. Needs 6 GPUs, 4 are free."
    assert reasons == [sentence, f"{sentence} No GPU can be reclaimed."]


def test_verdict_title_describes_the_effects_on_other_workloads() -> None:
    kinds = {"a": "shrink", "b": "reclaim", "c": "consolidate", "d": "preempt"}
    effect = {"preemptor": "e", "gpus": 1, "lost_gpu_seconds": 0, "rule": "", "explanation": []}
    evictions = [
        {"victim": victim, "workload": victim, "kind": kind, **effect} for victim, kind in kinds.items()
    ]
    verdict = build_verdict(Prediction("would_evict", {}, evictions=evictions[:1]))
    assert verdict.title == "Would start and scale down 1 other workload"
    assert verdict.reason == "Scales down a (1 GPU)."
    verdict = build_verdict(Prediction("would_evict", {}, evictions=evictions))
    words = "evict 2 other workloads, scale down 1 other workload, move 1 other workload"
    assert verdict.title == f"Would start and {words}"
    assert (verdict.short_title, verdict.short_reason) == (
        "Would start", "Evicts 2 workloads, scales down 1, moves 1",
    )  # fmt: skip
    hidden = {"victim": "a workload in project speech", "workload": "", "kind": "reclaim", **effect}
    verdict = build_verdict(Prediction("would_evict", {}, evictions=[hidden, hidden]))
    assert verdict.title == "Would start and evict 2 other workloads"


def test_secret_and_array_sections_are_expanded_if_they_have_values(dave: Client) -> None:
    document = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    folded = '<details class="card" id="p-{}"><summary'.format
    text = refresh_form(dave, document).content.decode()
    assert folded("secrets-and-outputs") in text and folded("array") in text
    text = refresh_form(dave, document + "outputs: [results]\n").content.decode()
    assert folded("secrets-and-outputs") not in text and folded("array") in text


def test_example_lines_fit_in_the_editor_in_a_narrow_window() -> None:
    lines = [line for _, _, text in EXAMPLES.values() for line in text.splitlines()]
    assert max(len(line) for line in lines if "#" in line) <= 57


def test_markup_in_names_is_escaped(cast: Cast, dave: Client) -> None:
    evil = "<script>alert(1)</script>"
    document = f'name: "{evil}"\nproject: "{evil}"\npools: ["{evil}"]\n'
    document += f'env: {{A: "{evil}"}}\ncommand: "{evil}"\n'
    page = refresh_form(
        dave, document + f'roles: [{{name: "{evil}", replicas: "{evil}"}}]\n'
    ).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.heavy
def test_link_to_edit_a_copy_opens_a_form_with_a_new_name(cast: Cast, dave: Client) -> None:
    like = make.workload(cast.vision, "train")
    answer = dave.get(f"/submit?like={like.pk}")
    assert 'value="train-2"' in answer.content.decode()
    assert f"/submit?like={like.pk}" in dave.get(f"/workloads/{like.pk}").content.decode()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["gang", "single", "roles", "elastic", "interactive"])
def test_every_preset_is_submitted_with_the_default_priority(kind: str, cast: Cast, dave: Client) -> None:
    text = dave.get("/submit", {"kind": kind}).context["text"]
    assert "priority" not in text
    answer = dave.post("/submit", {"document": text, "agreed": text, "step": "submit"}, headers=HTMX)
    assert answer.status_code == 204, answer.content.decode()
    workload = Workload.objects.get()
    assert (workload.project, workload.priority) == (cast.vision, DEFAULT)


@pytest.mark.heavy
def test_first_example_runs_a_command_that_succeeds_without_files(dave: Client, tmp_path: Path) -> None:
    text = dave.get("/submit").context["text"]
    document = read_document(text)
    assert [role["replicas"] for role in document["roles"]] == [1]
    command = document["command"].replace("sleep 5", "true")
    ended = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, env={"PATH": str(tmp_path)}
    )
    assert (ended.returncode, ended.stdout) == (0, "no NVIDIA driver\nstep 1\nstep 2\nstep 3\n")
    assert 'class="warning"' not in refresh_form(dave, text).content.decode()


@pytest.mark.heavy
def test_warning_about_a_missing_program_is_shown_next_to_its_command(dave: Client) -> None:
    text = "name: fine\nproject: vision\nroles: [{name: a, command: python serve.py, gpu: 1}]\n"
    page = refresh_form(dave, text).content.decode()
    assert 'id="f-roles-0-command-warning">serve.py is not part of this workload.' in page
    assert 'id="f-command-warning"' not in page
    assert dave.post("/submit", {"document": text, "step": "submit"}, headers=HTMX).status_code == 204


def select_options(page: str, ident: str) -> list[str]:
    select = re.search(rf'<select id="{ident}".*?</select>', page, re.DOTALL)
    return re.findall(r"<option[^>]*>([^<]+)</option>", select[0]) if select else []


@pytest.mark.heavy
def test_priority_is_chosen_by_name(dave: Client) -> None:
    assert select_options(dave.get("/submit").content.decode(), "f-priority") == [
        "25 (very low)", "40 (low)", f"{DEFAULT} (default)", "65 (medium low)", "80 (medium)",
        "90 (medium high)", "125 (high), non-preemptible", "150 (very high), non-preemptible",
    ]  # fmt: skip
    service = dave.get("/submit?kind=service").content.decode()
    assert f"{SERVICE_DEFAULT} (default)" in select_options(service, "f-priority")
    text = "name: a\nproject: vision\ncommand: b\npriority: 60\nroles: [{gpu: 1}]\n"
    assert select_options(refresh_form(dave, text).content.decode(), "f-priority")[-1] == "60"


def test_explicit_defaults_are_shown_like_absent_values(dave: Client) -> None:
    text = "name: a\nproject: vision\ncommand: b\nkind: training\nrestart_policy: {kind: never}\n"
    page = refresh_form(dave, text).content.decode()
    assert select_options(page, "f-kind")[0] == "Training" and 'value="training" selected' in page
    assert select_options(page, "f-restart_policy-kind") == ["Never", "On failure", "Always"]


LIMITED = (
    "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{name: worker, replicas: 1, limit: {cpu: 2}}]\n"
)
NOT_ENFORCED = "The CPU and memory limits of role worker are not enforced on the pool local"


@pytest.mark.heavy
def test_form_warns_about_limits_that_are_not_enforced(dave: Client) -> None:
    assert (
        NOT_ENFORCED in dave.post("/submit/prediction", {"document": LIMITED}, headers=HTMX).content.decode()
    )
    answer = dave.post("/submit", {"document": LIMITED, "agreed": LIMITED, "step": "submit"}, follow=True)
    assert NOT_ENFORCED in " ".join(str(message) for message in answer.context["messages"])


def test_image_field_is_hidden_and_an_image_is_rejected_if_no_pool_supports_images(dave: Client) -> None:
    text = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1}]\n"
    answer = refresh_form(dave, text + "image: docker.io/org/torch\n")
    assert "pool local does not run container images" in field_error(answer, "image")
    assert 'name="f:image"' not in refresh_form(dave, text).content.decode()


ARRAY = "name: sweep\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\narray: {tasks: 2}\n"


def test_form_offers_images_of_the_users_projects(cast: Cast, sign_in: SignIn) -> None:
    cast.pool.runtime = "kubernetes"
    cast.pool.save()
    for project, image in ((cast.vision, "old:1"), (cast.vision, "new:2"), (cast.ads, "secret:3")):
        make.workload(project, image[:3], spec={"name": image[:3], "image": image})
    page = sign_in("dave").get("/submit").content.decode()
    offered = page.partition('<datalist id="images">')[2].partition("</datalist>")[0]
    assert re.findall(r'value="([^"]+)"', offered) == ["new:2", "old:1"]
    assert 'list="images"' in page


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("3", [0, 1, 2]), ("0-2", [0, 1, 2]), ("1, 5,10-30:10", [1, 5, 10, 20, 30])],
)
def test_array_field_accepts_numbers_and_ranges(
    cast: Cast, dave: Client, text: str, indexes: list[int]
) -> None:
    typed = {"document": ARRAY, "agreed": ARRAY, "step": "submit", PREFIX + "array.tasks": text}
    assert dave.post("/submit", typed, headers=HTMX).headers["HX-Redirect"].startswith("/arrays/")
    tasks = Workload.objects.order_by("array_index").values_list("array_index", flat=True)
    assert list(tasks) == indexes


def test_error_replaces_the_hint_of_a_field(cast: Cast, dave: Client) -> None:
    typed = {"document": ARRAY, "agreed": ARRAY, "step": "look", PREFIX + "array.tasks": "0-9%x"}
    answer = dave.post("/submit", typed, headers=HTMX)
    message = "Neither a number of tasks nor a list of indexes. Enter a number such as 30, or indexes"
    assert message in field_error(answer, "array.tasks")
    hint = "Number of tasks, or indexes such as 0-29"
    assert hint not in answer.content.decode()
    typed[PREFIX + "array.tasks"] = "0-9"
    assert hint in dave.post("/submit", typed, headers=HTMX).content.decode()


def test_error_for_a_task_limit_in_the_array_field_points_to_max_running_tasks(
    cast: Cast, dave: Client
) -> None:
    typed = {"document": ARRAY, "agreed": ARRAY, "step": "look", PREFIX + "array.tasks": "0-29%4"}
    answer = dave.post("/submit", typed, headers=HTMX)
    assert field_error(answer, "array.tasks") == "Enter 0-29 here and 4 in Max running tasks."


def test_verdict_of_an_array_covers_all_tasks(cast: Cast, dave: Client) -> None:
    node = make.node(cast.pool, gpus=2)
    make.quota(cast.research, cast.pool, 8)
    make.quota(cast.vision, cast.pool, 8)
    page = text_of(dave, ARRAY.replace("tasks: 2", "tasks: 30"))
    assert "2 of 30 tasks would start immediately" in page
    assert "30 tasks, 30 GPUs in total (1 per task)" in page
    assert "Queued tasks 28 tasks: waiting for scale up." in page
    assert "Other reasons Waiting for capacity Needs 1 GPU, none is free" in page
    assert "All 2 tasks would start immediately" in text_of(dave, ARRAY)
    on_cpus = text_of(dave, ARRAY.replace("gpu: 1", "cpu: 1"))
    assert "All 2 tasks would start immediately" in on_cpus and "Request 2 tasks About" in on_cpus
    one_at_a_time = text_of(dave, ARRAY.replace("tasks: 2", "tasks: 4, max_running: 1"))
    assert "1 of 4 tasks would start immediately" in one_at_a_time
    make.place(make.workload(cast.vision, "holder", gpus=2, phase="running"), node, [0, 1])
    page = text_of(dave, ARRAY)
    assert "All 2 tasks would be queued" in page or "First of 2 tasks: would start after" in page


def text_of(client: Client, document: str) -> str:
    answer = client.post("/submit/prediction", {"document": document}, headers=HTMX)
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def test_invalid_edits_of_a_document_are_ignored(cast: Cast, dave: Client) -> None:
    text = "name: fine\nproject: vision\n"
    for step in ("set:", "set:[1]", "set:{}", "set:[[1]]", "set:null"):
        answer = refresh_form(dave, text, step=step)
        assert answer.status_code == 200
        assert answer.context["text"] == text


def test_form_selects_the_project_of_the_latest_workload(cast: Cast, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    document = "command: sleep 1\nroles: [{replicas: 1}]\n"
    for project in ("vision", "ads"):
        workloads.submit(
            actor=cast.alice,
            project=getattr(cast, project),
            document={"name": "x", **read_document(document)},
        )
        assert f"project: {project}\n" in alice.get("/submit").context["text"]
    assert "project: vision\n" in alice.get("/submit?project=vision").context["text"]
