"""Tests for the submission form and its document, which stay in sync."""

import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from berth.core.priorities import DEFAULT, SERVICE_DEFAULT
from berth.documents import read_document
from projects.models import Workload
from projects.services.workloads.prediction import Prediction
from scheduler.web.submit.form.draft import PREFIX, Draft, apply_step, open_draft, read_draft
from scheduler.web.submit.form.fields import FormChoices
from scheduler.web.submit.form.presentation import prepare_form
from scheduler.web.submit.verdict import build_verdict
from scheduler.web.workloads.details import Obstacle
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
FORM_CHOICES = FormChoices(projects=["vision"], pools=["a", "b", "c"])
TEXT = """\
# every night
name: night
project: vision
command: python train.py   # short
roles:
  - name: worker   # the ranks
    replicas: 2
    gpu: 1
    node_selector: {disk: fast}   # no field shows this
"""


def fields(draft: Draft) -> dict[str, str]:
    return {
        field.form_field.path: field.value
        for part in prepare_form(draft, FORM_CHOICES).parts
        for field in (*part.fields, *part.more)
    }


def post(draft: Draft, document: str | None = None, **typed: Any) -> Draft:
    """Return the draft after a browser has sent these fields and, if passed, a changed document."""
    query = QueryDict(mutable=True)
    query["document"] = (document if document is not None else draft.text).replace("\n", "\r\n")
    query["agreed"] = draft.agreed
    for part in prepare_form(draft, FORM_CHOICES).parts:
        for field in (*part.fields, *part.more):
            if field.form_field.many:
                query.setlist(field.name, ["", *field.chosen])
            elif not field.is_text_only:
                query[field.name] = field.value
    for path, value in typed.items():
        query.setlist(PREFIX + path, value if isinstance(value, list) else [value])
    return read_draft(query, FORM_CHOICES)


def test_unchanged_document_is_preserved_byte_for_byte() -> None:
    assert post(open_draft(TEXT)).text == TEXT


@pytest.mark.parametrize(
    ("path", "typed", "was", "now"),
    [
        ("name", "weekly", "name: night\n", "name: weekly\n"),
        ("code.git.url", "https://git.example.org/a.git", "# short\n",
         "# short\ncode:\n  git:\n    url: https://git.example.org/a.git\n"),
        ("preemption.signal", "USR1", "project: vision\n", "project: vision\npreemption:\n  signal: USR1\n"),
        ("retry", "75,KILL max=2\n1 action=fail", "# short\n",
         ("# short\nretry:\n  - 'on':\n    - 75\n    - KILL\n    max: 2\n"
         "  - 'on':\n    - 1\n    action: fail\n")),
        ("outputs", "results\nlogs/loss.csv", "# short\n",
         "# short\noutputs: [results, logs/loss.csv]\n"),
        ("roles[0].gpu", "0.5", "gpu: 1\n", "gpu: 0.5\n"),
        ("roles[0].memory_mib", "4Gi", "    gpu: 1\n", "    gpu: 1\n    memory_mib: 4Gi\n"),
        ("roles[0].gpu_models", "A100, H100", "disk: fast}   # no field shows this\n",
         "disk: fast}   # no field shows this\n    gpu_models: [A100, H100]\n"),
        ("roles[0].at_least", "4", "replicas: 2", "replicas: 4"),
        ("roles[0].at_most", "8", "    replicas: 2\n", "    min: 2\n    max: 8\n"),
        ("kind", "elastic", "project: vision\n", "project: vision\nkind: elastic\n"),
        ("priority", "high", "project: vision\n", "project: vision\npriority: high\n"),
        ("preemptible", "false", "project: vision\n", "project: vision\npreemptible: false\n"),
        ("max_runtime", "2h", "project: vision\n", "project: vision\nmax_runtime: 7200\n"),
        ("command", "python other.py", "command: python train.py   # short",
         "command: python other.py   # short"),
        ("command", "a\nb", "command: python train.py   # short", "command: |-  # short\n  a\n  b"),
        ("env", "A=1\nB=x=y", "# short\n", "# short\nenv:\n  A: '1'\n  B: x=y\n"),
        ("secrets", "a=A\nb=file:b.pem", "# short\n",
         "# short\nsecrets:\n  - name: a\n    env: A\n  - name: b\n    file: b.pem\n"),
        ("pools", ["", "b", "a"], "project: vision\n", "project: vision\npools: [b, a]\n"),
        ("topology.required", "rack", "project: vision\n",
         "project: vision\ntopology:\n  required: rack\n"),
        ("command", "", "command: python train.py   # short\n", ""),
    ],
)  # fmt: skip
def test_changed_field_is_written_into_the_document(path: str, typed: Any, was: str, now: str) -> None:
    draft = post(open_draft(TEXT), **{path: typed})
    assert draft.text == TEXT.replace(was, now)
    assert (draft.agreed, draft.problems) == (draft.text, [])
    assert post(draft).text == draft.text, "form and document agree"


def test_form_fields_reflect_the_document() -> None:
    draft = post(open_draft(TEXT), TEXT.replace("replicas: 2", "min: 1\n    max: 3") + "pools: [c, a]\n")
    now = fields(draft)
    assert (now["roles[0].at_least"], now["roles[0].at_most"]) == ("1", "3")
    checkboxes = [
        field
        for part in prepare_form(draft, FORM_CHOICES).parts
        for field in part.fields
        if field.form_field.path == "pools"
    ]
    assert checkboxes[0].checkboxes == [
        ("c", "c", True, "1."), ("a", "a", True, "2."), ("b", "b", False, ""),
    ]  # fmt: skip


def test_changes_in_form_and_document_are_merged() -> None:
    draft = post(open_draft(TEXT), TEXT + "labels: {team: nlp}  # mine\n", name="weekly")
    assert draft.text == TEXT.replace("name: night", "name: weekly") + "labels: {team: nlp}  # mine\n"
    assert fields(draft)["labels"] == "team=nlp"


def test_field_value_is_kept_while_the_document_is_invalid() -> None:
    broken = post(open_draft(TEXT), TEXT + "pools: [a\n", name="weekly")
    assert broken.data is None
    assert (broken.text, broken.agreed) == (TEXT + "pools: [a\n", TEXT)
    assert fields(broken)["name"] == "weekly"
    assert broken.line == 11
    mended = post(broken, TEXT + "pools: [a]\n")
    assert (mended.data or {})["name"] == "weekly"
    assert (mended.data or {})["pools"] == ["a"]


def test_invalid_field_preserves_its_input_and_reports_a_problem() -> None:
    draft = post(open_draft(TEXT), env="A=1\nnonsense")
    assert draft.text == TEXT
    assert fields(draft)["env"] == "A=1\nnonsense"
    assert [(problem.path, problem.received) for problem in draft.problems] == [("env", "nonsense")]
    assert post(draft, env="A=1").text == TEXT.replace("# short\n", "# short\nenv:\n  A: '1'\n")


def test_value_that_the_form_cannot_edit_is_preserved() -> None:
    text = TEXT + "env:\n  SCRIPT: |\n    a\n    b\n"
    draft = post(open_draft(text), name="weekly")
    parts = prepare_form(draft, FORM_CHOICES).parts
    fields = [field for part in parts for field in (*part.fields, *part.more)]
    env = next(field for field in fields if field.form_field.path == "env")
    assert env.is_text_only
    assert "    a\n    b\n" in draft.text


def test_command_list_stays_a_list() -> None:
    text = TEXT.replace("python train.py", "[python, train.py]")
    draft = post(open_draft(text), command="python\ntrain.py\n--fast run")
    assert (draft.data or {})["command"] == ["python", "train.py", "--fast run"]


def test_roles_and_notifications_can_be_added_and_removed() -> None:
    draft = open_draft(TEXT)
    apply_step(draft, "add:roles")
    apply_step(draft, "add:notifications", mail="me@example.org")
    assert draft.text == (
        TEXT.replace("# short\n", "# short\nnotifications:\n  - to: me@example.org\n")
        + "  - name: role-2\n    replicas: 1\n"
    )
    changed = post(draft, None, **{"roles[1].gpu": "1", "notifications[0].on": ["", "failed"]})
    assert (changed.data or {})["roles"][1] == {"name": "role-2", "replicas": 1, "gpu": 1}
    assert (changed.data or {})["notifications"] == [{"to": "me@example.org", "on": ["failed"]}]
    apply_step(changed, "remove:roles[1]")
    apply_step(changed, "remove:notifications[0]")
    assert changed.data == open_draft(TEXT).data
    for nonsense in ("add:", "remove:roles[9]", "explode:roles", "add:..", "remove:name[0]"):
        apply_step(changed, nonsense)
    assert changed.data == open_draft(TEXT).data


def test_roles_in_groups_have_form_fields() -> None:
    text = "name: x\ngroups:\n  - name: left\n    roles: [{name: a, replicas: 1}, {name: b, replicas: 2}]\n"
    draft = post(open_draft(text), **{"groups[0].roles[1].gpu": "2"})
    assert draft.text == text.replace("replicas: 2}", "replicas: 2, gpu: 2}")


def test_training_job_manifest_can_be_edited_only_as_text() -> None:
    draft = open_draft("apiVersion: v1\nkind: TrainingJob\nmetadata: {name: x}\n")
    assert not draft.has_form
    assert prepare_form(draft, FORM_CHOICES).parts == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "just words", "roles: 7", "roles: [7, null, {}]", "groups: [[]]", "notifications: {a: 1}",
     "pools: x", "name: {a: b}", "env: [1]", "roles: [{replicas: [1]}]", "name: ~", "? [a]\n: b"],
)  # fmt: skip
def test_malformed_document_does_not_break_the_form(text: str) -> None:
    draft = open_draft(text)
    again = post(draft, name="other")
    assert again.data is None or again.data.get("name") == "other" or again.problems
    prepare_form(again, FORM_CHOICES)


# ------------------------------------------------------------------ the page


def refresh_form(client: Client, document: str, **more: Any) -> Any:
    return client.post(
        "/submit", {"document": document, "agreed": document, "step": "look", **more}, headers=HTMX
    )


def field_error(answer: Any, path: str) -> str:
    """Return the error shown for a field, without markup."""
    ident = "f-" + re.sub(r"[^a-z0-9_]+", "-", path).strip("-")
    match = re.search(rf'id="{ident}-error">(.*?)</span></span>', answer.content.decode(), re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "", match[1])) if match else ""


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


@pytest.mark.parametrize(
    ("was", "now", "path", "words"),
    [
        ("gpu: 1", "gpu: 1.5", "roles[0].gpu", "Allowed: a whole number from 0 to 1024, or"),
        ("replicas: 2", "min: 4, max: 2", "roles[0].at_least", "Above max. Allowed: at most 2."),
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
        ("name: fine", "name: taken", "name", "Already in use. Allowed: a name that"),
        ("project: vision", "project: ads", "project", "Does not exist. Allowed: the name"),
        ("pools: [local]", "pools: [moon]", "pools", "Does not exist. Allowed: local"),
        ("command: sleep 1", "", "command", "Enter a command."),
        ("gpu: 1}", "gpu: 1}\noutputs: [a, ../b]", "outputs", "Leads out of the pod's directory. Allowed: a"),
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


def test_workload_that_only_lacks_nodes_gets_a_verdict_about_their_boot(cast: Cast, dave: Client) -> None:
    make.quota(cast.vision, cast.pool, 4)
    document = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1, gpu: 1}]\n"
    page = dave.post("/submit/prediction", {"document": document}, headers=HTMX).content.decode()
    assert "Would start after 1 node has booted</h2>" in page
    assert '<span class="chip info">Scales up</span>' in page
    assert page.count("<h3>Waiting for scale up</h3>") == page.count("<h3>") == 1
    assert "The workload would start after 1 node has booted.</p>" in page
    assert "no node of pool local has booted yet" in unescape(page).lower()


def test_one_reason_decides_and_the_others_are_folded() -> None:
    capacity = {"reason": "WaitingForCapacity", "message": "2 GPUs missing.", "numbers": {}}
    share = {"reason": "WouldExceedFairShare", "message": "Over its share.", "numbers": {}}
    reclaim = {"reason": "NoReclaimableResources", "message": "No GPU can be reclaimed.", "numbers": {}}
    verdict = build_verdict(
        Prediction("would_stay_pending", {}, blockers=[share, capacity, reclaim], queue_position=3)
    )
    assert (verdict.title, verdict.chip) == ("Would be queued", "Queued, position 3")
    assert verdict.sentence == "The workload would be queued. Over its share."
    assert verdict.decisive == Obstacle("WouldExceedFairShare", "Over its share.", [])
    assert [obstacle.message for obstacle in verdict.others] == ["2 GPUs missing."]


def test_markup_in_names_is_escaped(cast: Cast, dave: Client) -> None:
    evil = "<script>alert(1)</script>"
    document = f'name: "{evil}"\nproject: "{evil}"\npools: ["{evil}"]\n'
    document += f'env: {{A: "{evil}"}}\ncommand: "{evil}"\n'
    page = refresh_form(
        dave, document + f'roles: [{{name: "{evil}", replicas: "{evil}"}}]\n'
    ).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_clone_link_of_the_workload_page_opens_a_form_with_a_new_name(cast: Cast, dave: Client) -> None:
    like = make.workload(cast.vision, "train")
    answer = dave.get(f"/submit?like={like.pk}")
    assert 'value="train-2"' in answer.content.decode()
    assert f"/submit?like={like.pk}" in dave.get(f"/workloads/{like.pk}").content.decode()


@pytest.mark.parametrize("kind", ["gang", "single", "roles", "elastic", "interactive"])
def test_every_preset_is_submitted_with_the_default_priority(kind: str, cast: Cast, dave: Client) -> None:
    text = dave.get("/submit", {"kind": kind}).context["text"]
    assert "priority" not in text
    answer = dave.post("/submit", {"document": text, "agreed": text, "step": "submit"}, headers=HTMX)
    assert answer.status_code == 204, answer.content.decode()
    workload = Workload.objects.get()
    assert (workload.project, workload.priority) == (cast.vision, DEFAULT)


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


@pytest.mark.parametrize(
    ("document", "program"),
    [
        ("command: python train.py --lr 1", "train.py"),
        ("command: [python3, -u, src/train.py]", "src/train.py"),
        ("command: torchrun --nnodes=2 train.py", "train.py"),
        ("command: LR=1 exec ./run.sh --out x.py", "./run.sh"),
        ("working_dir: src\ncommand: python train.py", "train.py"),
        ("command: echo a; python train.py", ""),
        ("command: python -m http.server", ""),
        ("command: python -c \"open('x.py')\"", ""),
        ("command: python /opt/train.py", ""),
        ("command: cd /opt && python train.py", ""),
        ("command: python 'train.py", ""),
        ("command: 7", ""),
        ("command: python train.py\ncode: {tree: abc}", ""),
        ("command: python train.py\ncode: {git: {url: https://git.example.org/a.git}}", ""),
        ("command: python train.py\nimage: docker.io/org/torch", ""),
        ("command: python train.py\nworkspace: /home/a", ""),
        ("command: python train.py\nworking_dir: /srv/a", ""),
        ("command: python train.py\nvolumes: [{name: data, path: /data}]", ""),
    ],
)
def test_command_warns_about_a_program_that_no_pod_has(document: str, program: str) -> None:
    draft = open_draft(f"{document}\nroles: [{{gpu: 1}}]\n")
    shown = {field.form_field.path: field for part in prepare_form(draft, FORM_CHOICES).parts
             for field in (*part.fields, *part.more)}  # fmt: skip
    warning = f"{program} is not part of this workload. Choose files or a Git repository under Code."
    assert shown["command"].warning == (warning if program else "")
    assert ("f-command-warning" in shown["command"].described_by) is bool(program)


def test_warning_about_a_program_is_shown_on_the_command_that_names_it(dave: Client) -> None:
    text = "name: fine\nproject: vision\nroles: [{name: a, command: python serve.py, gpu: 1}]\n"
    page = refresh_form(dave, text).content.decode()
    assert 'id="f-roles-0-command-warning">serve.py is not part of this workload.' in page
    assert 'id="f-command-warning"' not in page
    assert dave.post("/submit", {"document": text, "step": "submit"}, headers=HTMX).status_code == 204


def test_priority_field_lists_its_defaults(dave: Client) -> None:
    page = dave.get("/submit").content.decode()
    assert f"{DEFAULT} by default, {SERVICE_DEFAULT} for services" in page


LIMITED = (
    "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{name: worker, replicas: 1, limit: {cpu: 2}}]\n"
)
NOT_ENFORCED = "The CPU and memory limits of role worker are not enforced on the pool local"


def test_form_warns_about_limits_that_are_not_enforced(dave: Client) -> None:
    assert (
        NOT_ENFORCED in dave.post("/submit/prediction", {"document": LIMITED}, headers=HTMX).content.decode()
    )
    answer = dave.post("/submit", {"document": LIMITED, "agreed": LIMITED, "step": "submit"}, follow=True)
    assert NOT_ENFORCED in " ".join(str(message) for message in answer.context["messages"])


def test_image_is_rejected_on_its_field_and_hidden_if_no_pool_supports_images(dave: Client) -> None:
    text = "name: fine\nproject: vision\ncommand: sleep 1\nroles: [{replicas: 1}]\n"
    answer = refresh_form(dave, text + "image: docker.io/org/torch\n")
    assert "pool local does not run container images" in field_error(answer, "image")
    assert 'name="f:image"' not in refresh_form(dave, text).content.decode()
