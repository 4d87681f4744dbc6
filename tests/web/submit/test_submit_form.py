"""Tests that the submission form and its document stay in sync."""

from typing import Any

import pytest
from django.http import QueryDict

from scheduler.web.submit.form.draft import PREFIX, Draft, apply_form_action, open_draft, read_draft
from scheduler.web.submit.form.fields import FormChoices
from scheduler.web.submit.form.presentation import prepare_form

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
    """Return the draft after a browser has sent these fields and, if given, a changed document."""
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
        ("code.git.secret", "personal/deploy-key", "# short\n",
         "# short\ncode:\n  git:\n    secret: deploy-key\n    personal: true\n"),
        ("preemption.signal", "USR1", "project: vision\n", "project: vision\npreemption:\n  signal: USR1\n"),
        ("retry", "75,KILL max=2\n1 action=fail", "# short\n",
         ("# short\nretry:\n  - 'on':\n    - 75\n    - KILL\n    max: 2\n"
         "  - 'on':\n    - 1\n    action: fail\n")),
        ("outputs", "results\nlogs/loss.csv", "# short\n",
         "# short\noutputs: [results, logs/loss.csv]\n"),
        ("roles[0].gpu", "0.5", "gpu: 1\n", "gpu: 0.5\n"),
        ("roles[0].memory_mib", "4 GiB", "    gpu: 1\n", "    gpu: 1\n    memory_mib: 4096\n"),
        ("roles[0].memory_mib", "512Mi", "    gpu: 1\n", "    gpu: 1\n    memory_mib: 512\n"),
        ("roles[0].memory_mib", "4G", "    gpu: 1\n", "    gpu: 1\n    memory_mib: 4G\n"),
        ("roles[0].gpu_models", ["", "A100", "H100"], "disk: fast}   # no field shows this\n",
         "disk: fast}   # no field shows this\n    gpu_models: [A100, H100]\n"),
        ("roles[0].at_least", "4", "replicas: 2", "replicas: 4"),
        ("kind", "elastic", "project: vision\n", "project: vision\nkind: elastic\n"),
        ("priority", "high", "project: vision\n", "project: vision\npriority: high\n"),
        ("array.matrix", "LR=0.1, 1e-2\nDEPTH=2, 4", "# short\n",
         "# short\narray:\n  matrix:\n    LR: [0.1, 1e-2]\n    DEPTH: [2, 4]\n"),
        ("array.values", "LR=0.1 NAME='a b'\nLR=0.2 NAME=c", "# short\n",
         "# short\narray:\n  values:\n  - LR: 0.1\n    NAME: a b\n  - LR: 0.2\n    NAME: c\n"),
        ("preemptible", "false", "project: vision\n", "project: vision\npreemptible: false\n"),
        ("max_runtime", "2h", "project: vision\n", "project: vision\nmax_runtime: 2h\n"),
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


def test_only_elastic_training_has_a_max_replicas_field() -> None:
    assert "roles[0].at_most" not in fields(open_draft(TEXT))
    elastic = post(open_draft(TEXT), kind="elastic")
    assert fields(elastic)["roles[0].at_most"] == ""
    scaled = post(elastic, **{"roles[0].at_most": "8"})
    assert scaled.text == elastic.text.replace("    replicas: 2\n", "    min: 2\n    max: 8\n")
    training = post(scaled, kind="")
    assert fields(training)["roles[0].at_most"] == "8", "the document's maximum can be removed"
    assert post(training, **{"roles[0].at_most": ""}).text == TEXT


def test_default_events_are_selected() -> None:
    draft = open_draft(TEXT)
    apply_form_action(draft, "add:notifications", mail="me@example.org")
    (events,) = (
        field
        for part in prepare_form(draft, FORM_CHOICES).parts
        for field in part.fields
        if field.form_field.path == "notifications[0].on"
    )
    assert [value for value, _, is_selected in events.checkboxes if is_selected] == ["completed", "failed"]
    assert post(draft).text == draft.text, "the document stays short"


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
    assert checkboxes[0].checkboxes == [("a", "a", True), ("b", "b", False), ("c", "c", True)]
    assert checkboxes[0].ranking == [("c", "", "down:pools[0]"), ("a", "up:pools[1]", "")]


@pytest.mark.parametrize(
    ("step", "order"),
    [("up:pools[2]", "[a, c, b]"), ("down:pools[0]", "[b, a, c]"), ("up:pools[0]", "[a, b, c]"),
     ("down:pools[2]", "[a, b, c]"), ("up:pools", "[a, b, c]"), ("up:name[1]", "[a, b, c]")],
)  # fmt: skip
def test_pools_can_be_reordered(step: str, order: str) -> None:
    draft = open_draft(TEXT + "pools: [a, b, c]\n")
    apply_form_action(draft, step)
    assert (draft.data or {})["pools"] == order.strip("[]").split(", ")
    assert draft.text.startswith(TEXT)


def test_changes_in_form_and_document_are_merged() -> None:
    draft = post(open_draft(TEXT), TEXT + "labels: {team: nlp}  # mine\n", name="weekly")
    assert draft.text == TEXT.replace("name: night", "name: weekly") + "labels: {team: nlp}  # mine\n"
    assert fields(draft)["labels"] == "team=nlp"


def test_field_value_is_kept_while_the_document_is_invalid() -> None:
    broken = post(open_draft(TEXT), TEXT + "pools: [a\n", name="weekly")
    assert broken.data is None
    assert (broken.text, broken.agreed) == (TEXT + "pools: [a\n", TEXT)
    assert fields(broken)["name"] == "weekly"
    assert broken.line == 10, "the line of the bracket"
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


def test_services_have_no_array_section_unless_the_document_has_an_array() -> None:
    service = TEXT + "kind: service\n"
    parts = [part.title for part in prepare_form(open_draft(service), FORM_CHOICES).parts]
    assert "Service" in parts and "Array" not in parts
    with_array = [part.title for part in prepare_form(open_draft(service + "array: 3\n"), FORM_CHOICES).parts]
    assert "Array" in with_array, "an error in the array can be corrected in the form"


@pytest.mark.parametrize(
    ("written", "shown"), [("4096", "4 GiB"), ("1500", "1500 MiB"), ("4Gi", "4 GiB"), ("2097152", "2 TiB")]
)
def test_memory_has_a_unit_and_stays_as_written_until_it_is_changed(written: str, shown: str) -> None:
    text = TEXT.replace("    gpu: 1\n", f"    gpu: 1\n    memory_mib: {written}\n")
    draft = open_draft(text)
    assert fields(draft)["roles[0].memory_mib"] == shown
    assert f"memory_mib: {written}\n" in post(draft, name="other").text


def test_command_written_as_a_list_stays_a_list() -> None:
    text = TEXT.replace("python train.py", "[python, train.py]")
    draft = post(open_draft(text), command="python\ntrain.py\n--fast run")
    assert (draft.data or {})["command"] == ["python", "train.py", "--fast run"]


def test_roles_and_notifications_can_be_added_and_removed() -> None:
    draft = open_draft(TEXT)
    apply_form_action(draft, "add:roles")
    apply_form_action(draft, "add:notifications", mail="me@example.org")
    assert draft.text == (
        TEXT.replace("# short\n", "# short\nnotifications:\n  - to: me@example.org\n")
        + "  - name: role-2\n    replicas: 1\n"
    )
    changed = post(draft, None, **{"roles[1].gpu": "1", "notifications[0].on": ["", "failed"]})
    assert (changed.data or {})["roles"][1] == {"name": "role-2", "replicas": 1, "gpu": 1}
    assert (changed.data or {})["notifications"] == [{"to": "me@example.org", "on": ["failed"]}]
    apply_form_action(changed, "remove:roles[1]")
    apply_form_action(changed, "remove:notifications[0]")
    assert changed.data == open_draft(TEXT).data
    for nonsense in ("add:", "remove:roles[9]", "explode:roles", "add:..", "remove:name[0]"):
        apply_form_action(changed, nonsense)
    assert changed.data == open_draft(TEXT).data


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            TEXT.replace("roles:", "rolls:"),
            "rolls:\n  - name: worker   # the ranks\n    replicas: 2\n    gpu: 4\n",
        ),
        ("name: night\nproject: vision\ncommand: run\n", "roles:\n  - gpu: 4\n"),
    ],
)
def test_resources_stay_in_the_form_while_the_document_has_no_roles(before: str, after: str) -> None:
    draft = open_draft(before)
    assert "Resources" in [part.title for part in prepare_form(draft, FORM_CHOICES).parts]
    assert post(draft).text == before
    key = after.partition(":")[0]
    assert after in post(draft, **{f"{key}[0].gpu": "4"}).text


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
def test_command_field_warns_about_a_program_that_the_workload_lacks(document: str, program: str) -> None:
    draft = open_draft(f"{document}\nroles: [{{gpu: 1}}]\n")
    shown = {field.form_field.path: field for part in prepare_form(draft, FORM_CHOICES).parts
             for field in (*part.fields, *part.more)}  # fmt: skip
    warning = f"{program} is not part of this workload. Choose files or a Git repository under Code."
    assert shown["command"].warning == (warning if program else "")
    assert ("f-command-warning" in shown["command"].described_by) is bool(program)


def test_reselecting_a_number_keeps_it_a_number_in_the_document() -> None:
    text = TEXT + "priority: 60\n"
    low = post(open_draft(text), priority="low")
    assert low.text == TEXT + "priority: low\n"
    assert post(low, priority="60").text == text


def test_rarely_used_fields_are_collapsed() -> None:
    parts = {part.title: part for part in prepare_form(open_draft(TEXT), FORM_CHOICES).parts}
    labels = {title: [field.form_field.label for field in part.fields] for title, part in parts.items()}
    assert labels["Resources"][:2] == ["Replicas", "GPUs per pod"]
    assert labels["Scheduling"] == ["Node pools", "Priority", "Max runtime"]
    assert not parts["Resources"].is_expanded, "the role's name alone does not open the options"
    assert not parts["Scheduling"].is_expanded
    restarts = open_draft(TEXT + "restart_policy: {kind: on_failure}\n")
    assert {part.title for part in prepare_form(restarts, FORM_CHOICES).parts if part.is_expanded} == {
        "Scheduling"
    }


def test_form_explains_max_runtime() -> None:
    parts = prepare_form(open_draft(TEXT), FORM_CHOICES).parts
    (field,) = [
        shown.form_field for part in parts for shown in part.fields if shown.form_field.path == "max_runtime"
    ]
    assert field.hint.startswith("Stops a run after this time")


def test_form_labels_the_preempted_event_as_evicted() -> None:
    draft = open_draft(TEXT)
    apply_form_action(draft, "add:notifications", mail="me@example.org")
    fields = [shown.form_field for part in prepare_form(draft, FORM_CHOICES).parts for shown in part.fields]
    by_path = {field.path: field for field in fields}
    assert dict(by_path["notifications[0].on"].choices)["preempted"] == "Evicted"


def test_pools_are_offered_only_if_there_is_a_choice() -> None:
    one = FormChoices(projects=["vision"], pools=["a"])
    for text, shown in ((TEXT, False), (TEXT + "pools: [a]\n", True)):
        parts = prepare_form(open_draft(text), one).parts
        assert any(field.form_field.path == "pools" for part in parts for field in part.fields) is shown
