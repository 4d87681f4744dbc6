"""Tests for the page that edits a pending workload."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client

from projects.models import Workload
from projects.services import workloads
from projects.services.workloads import submission
from scheduler.web.submit.form.draft import PREFIX
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn

MANIFEST = Path(__file__).parents[4] / "examples" / "training-job" / "training_job.yaml"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def train(cast: Cast) -> Workload:
    document = training("train", priority=50, max_runtime=3600)
    return submission.submit(actor=cast.dave, project=cast.vision, document=document)


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


def address(workload: Workload) -> str:
    return f"/workloads/{workload.pk}/edit"


def form_of(answer: Any) -> dict[str, Any]:
    """Return the values of the page's form as a browser would send them."""
    return {
        "document": answer.context["text"],
        "agreed": answer.context["draft"].agreed,
        "version": answer.context["edit_page"].version,
    }


def test_edit_page_compares_values_with_units_to_the_stored_numbers(dave: Client, train: Workload) -> None:
    role = {**train.spec["roles"][0], "memory_mib": 4096}
    Workload.objects.filter(pk=train.pk).update(spec={**train.spec, "roles": [role]})
    opened = dave.get(address(train))
    text = opened.context["text"]
    assert "max_runtime: 1h\n" in text and "memory_mib: 4096\n" in text
    assert "data-unchanged" in opened.content.decode()
    form = form_of(opened)
    same = dave.post(address(train), {**form, "step": "look"}, headers=HTMX).content.decode()
    assert "changes-title" not in same
    form["document"] = text.replace("1h", "2h").replace("memory_mib: 4096", "memory_mib: 6Gi")
    previewed = dave.post(address(train), {**form, "step": "look"}, headers=HTMX).content.decode()
    words = " ".join(re.sub(r"<[^>]+>", " ", previewed.partition('id="changes-title"')[2]).split())
    assert "1h" in words and "2h" in words and "4 GiB" in words and "6 GiB" in words
    dave.post(address(train), {**form, "step": "save"})
    train.refresh_from_db()
    assert (train.spec["max_runtime"], train.spec["roles"][0]["memory_mib"]) == (7200, 6144)


@pytest.mark.parametrize("unit", ["2Gi", "2048"])
def test_memory_amounts_in_groups_and_limits_are_compared_in_mib(cast: Cast, dave: Client, unit: str) -> None:
    role = {"name": "worker", "gpu": 1, "memory_mib": 1024, "limit": {"memory_mib": 2048}}
    document = {"name": "grouped", "command": "run", "groups": [{"name": "all", "roles": [role]}]}
    grouped = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    opened = dave.get(address(grouped))
    text = opened.context["text"].replace("memory_mib: 1024", "memory_mib: 1Gi")
    text = text.replace("memory_mib: 2048", f"memory_mib: {unit}")
    look = {**form_of(opened), "document": text, "step": "look"}
    assert "data-unchanged" in dave.post(address(grouped), look, headers=HTMX).content.decode()
    look["document"] = text.replace("memory_mib: 1Gi", "memory_mib: 1536Mi")
    changed = dave.post(address(grouped), look, headers=HTMX)
    assert [change.path for change in changed.context["edit_page"].changes] == [
        "groups[0].roles[0].memory_mib"
    ]


def test_changes_are_counted_next_to_the_save_button(dave: Client, train: Workload) -> None:
    Workload.objects.filter(pk=train.pk).update(spec={**train.spec, "labels": {"team": "a"}})
    opened = dave.get(address(train))
    place = 'id="change-summary">'
    assert opened.content.decode().partition(place)[2].startswith("\n</span>")
    form, text = form_of(opened), opened.context["text"]

    def summary(document: str) -> str:
        look = {**form, "document": document, "step": "look"}
        answer = dave.post(address(train), look, headers=HTMX).content.decode()
        part = answer.partition('id="change-summary" hx-swap-oob="innerHTML">')[2].partition("</a>")[0]
        return " ".join(re.sub(r"<[^>]+>", " ", part).split())

    changed = text.replace("priority: 50\n", "")
    assert summary(changed) == "1 unsaved change"
    changed = changed.replace("team: a", "team: b").replace("1h", "2h")
    assert summary(changed) == "3 unsaved changes"


def test_edit_page_has_the_cards_of_the_submission_page_in_the_same_order(
    dave: Client, train: Workload
) -> None:
    orders = []
    for page in (dave.get(address(train)), dave.get("/submit?kind=train")):
        form = page.content.decode().partition('id="fields"')[2].partition('id="answer"')[0]
        orders.append([title for title in re.findall(r"<h2[^>]*>([^<]+)</h2>", form) if title != "Array"])
    assert orders[0] == orders[1]
    assert orders[0][:4] == ["Workload", "Code", "Resources", "Scheduling"]
    assert orders[0][-1] == "Notifications"


def test_edit_page_shows_units_of_all_durations_and_stores_seconds(cast: Cast, dave: Client) -> None:
    durations = {"idle_timeout": 3600, "preemption_delay": 120, "keep_failed_pod": 86_400}
    document = {"name": "idler", "command": "run", "roles": [{"gpu": 1}], **durations}
    idler = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    opened = dave.get(address(idler))
    text = opened.context["text"]
    assert all(line in text for line in ("idle_timeout: 1h", "preemption_delay: 2m", "keep_failed_pod: 1d"))
    assert "data-unchanged" in opened.content.decode()
    dave.post(address(idler), {**form_of(opened), "document": text.replace("1h", "2h"), "step": "save"})
    idler.refresh_from_db()
    assert {key: idler.spec[key] for key in durations} == {**durations, "idle_timeout": 7200}


def test_edit_page_previews_and_saves_changes(dave: Client, train: Workload) -> None:
    assert f'href="{address(train)}"' in dave.get(f"/workloads/{train.pk}").content.decode()
    opened = dave.get(address(train))
    assert "data-unchanged" in opened.content.decode() and "changes-title" not in opened.content.decode()
    for fixed in ("name", "project", "kind"):
        assert re.search(rf'id="w-f-{fixed}" data-field hidden>', opened.content.decode()), fixed
    form = form_of(opened)
    form["document"] = form["document"].replace("priority: 50", "priority: 60")
    previewed = dave.post(address(train), {**form, "step": "look"}, headers=HTMX).content.decode()
    assert "Queue time unchanged</span>" in previewed
    grown = form["document"].replace("replicas: 2", "replicas: 3")
    grown_page = dave.post(address(train), {**form, "document": grown, "step": "look"}, headers=HTMX)
    answer = " ".join(grown_page.content.decode().split())
    assert ">Save and reset queue time</span>" in answer and "Queue time unchanged" not in answer
    assert "The workload requests 3 GPUs instead of 2" in answer
    order = "changes keep the order of the cards"
    assert previewed.index('id="prediction"') < previewed.index('id="changes-title"'), order
    train.refresh_from_db()
    assert train.priority == 50
    assert dave.post(address(train), {**form, "step": "save"}, headers=HTMX).status_code == 204
    train.refresh_from_db()
    assert (train.priority, train.max_runtime) == (60, 3600)


@pytest.mark.heavy
def test_form_fields_update_the_document(dave: Client, train: Workload) -> None:
    form = form_of(dave.get(address(train)))
    answer = dave.post(address(train), {**form, f"{PREFIX}max_runtime": "7200", "step": "look"}, headers=HTMX)
    assert "max_runtime: 7200" in answer.context["text"]
    shown = answer.content.decode()
    assert ">Save and reset queue time</span>" in shown
    assert "a max runtime of 2h instead of 1h" in shown


def test_edit_page_warns_of_missing_programs_unless_the_command_has_run(cast: Cast, dave: Client) -> None:
    document = training(command="python train.py")
    row = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    assert "train.py is not part of this workload" in dave.get(address(row)).content.decode()
    Workload.objects.filter(pk=row.pk).update(run=1)
    opened = dave.get(address(row))
    assert "is not part of this workload" not in opened.content.decode()
    form = form_of(opened)
    form["document"] = form["document"].replace("train.py", "other.py")
    changed = dave.post(address(row), {**form, "step": "look"}, headers=HTMX).content.decode()
    assert "other.py is not part of this workload" in changed


def test_edit_page_predicts_the_effect_of_the_changes(cast: Cast, dave: Client, train: Workload) -> None:
    opened = dave.get(address(train))
    prediction = f"{address(train)}/prediction"
    assert f'hx-post="{prediction}"' in opened.content.decode()
    document = opened.context["text"].replace("priority: 50", "priority: 60")
    shown = dave.post(prediction, {"document": document}, headers=HTMX).content.decode()
    assert 'id="prediction-title">Would start after 1 node has booted' in shown
    assert "at priority 60" in shown
    assert "Changes take effect when you save them." in shown
    train.refresh_from_db()
    assert train.priority == 50
    without_script = dave.post(address(train), {**form_of(opened), "step": "try"})
    assert 'id="prediction-title">Would start after 1 node has booted' in without_script.content.decode()


def test_edit_effects_omit_unchanged_gpus_and_unknown_positions(cast: Cast, dave: Client) -> None:
    document = {"name": "wide", "pools": [cast.pool.name], "command": "run", "priority": 50}
    document["roles"] = [{"gpu": 8, "replicas": 250}]
    wide = workloads.submit(actor=cast.dave, project=cast.vision, document=document)

    def effects(replicas: int) -> str:
        text = dave.get(address(wide)).context["text"].replace("priority: 50", "priority: 60")
        edited = {"document": text.replace("replicas: 250", f"replicas: {replicas}")}
        shown = dave.post(f"{address(wide)}/prediction", edited, headers=HTMX).content.decode()
        assert 'id="prediction-title"' in shown
        rows = re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", shown, re.DOTALL)
        changed = [f"{name} {value}" for name, value in rows if " → <strong>" in value]
        return " ".join(re.sub(r"<[^>]+>", " ", "".join(changed)).split())

    assert effects(250) == ""
    assert effects(125) == "GPUs 2,000 → 1,000"


def test_smallest_change_is_offered_until_the_document_changes(
    cast: Cast, dave: Client, train: Workload
) -> None:
    opened = dave.get(address(train))
    card = f'hx-get="/workloads/{train.pk}/edit/smallest-change"'
    document = opened.context["text"]

    def predict(text: str) -> str:
        response = dave.post(f"{address(train)}/prediction", {"document": text}, headers=HTMX)
        return response.content.decode()

    assert card in predict(document)
    changed = predict(document.replace("priority: 50", "priority: 60"))
    assert 'id="prediction-title"' in changed and card not in changed


def test_button_applies_the_smallest_change_to_the_edit_form(
    cast: Cast, dave: Client, sign_in: SignIn
) -> None:
    make.node(cast.pool, gpus=2)
    make.quota(cast.research, cast.pool, 64)
    make.quota(cast.vision, cast.pool, 64)
    document = {"name": "wide", "pools": [cast.pool.name], "command": "run", "roles": [{"gpu": 4}]}
    wide = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    card = dave.get(f"{address(wide)}/smallest-change").content.decode()
    assert "role worker requested 2 GPUs instead of 4" in card and "Apply to the form" in card
    (step,) = re.findall(r'name="step" value="([^"]+)"', card)
    form = form_of(dave.get(address(wide)))
    changed = dave.post(address(wide), {**form, "step": unescape(step)}, headers=HTMX)
    assert yaml.safe_load(changed.context["text"])["roles"][0]["gpu"] == 2
    assert 'id="changes-title"' in changed.content.decode()
    assert sign_in("grace").get(f"{address(wide)}/smallest-change").status_code == 404


def test_prediction_states_that_the_fair_share_grows_with_the_request(
    cast: Cast, dave: Client, train: Workload
) -> None:
    node = make.node(cast.pool, gpus=4)
    for project, gpus in ((cast.speech, 3), (cast.vision, 1)):
        running = make.workload(project, f"runs-{gpus}", phase="running", run=1, pool=cast.pool)
        make.place(running, node, [0, 1, 2] if gpus > 1 else [3])
    status = make.queue_status(cast.vision, cast.pool, share=1, allocated=1, requested=1)
    document = yaml.safe_load(dave.get(address(train)).context["text"])
    document["roles"][0] |= {"replicas": 2, "gpu": 1}
    document["pools"] = [cast.pool.name]
    text = yaml.safe_dump(document)
    shown = dave.post(f"{address(train)}/prediction", {"document": text}, headers=HTMX).content.decode()
    assert "The fair share of vision is 1 now. With this request, it is 2." in shown
    status.share[0] = 2000
    status.save()
    shown = dave.post(f"{address(train)}/prediction", {"document": text}, headers=HTMX).content.decode()
    assert "The fair share of vision" not in shown


def test_edit_event_uses_the_form_labels(cast: Cast, dave: Client, train: Workload) -> None:
    train.spec["roles"][0]["memory_mib"] = 4096
    train.save()
    role = {**train.spec["roles"][0], "replicas": 1, "memory_mib": 6400, "max": None, "min": None}
    patch = {"roles": [{key: value for key, value in role.items() if value is not None}], "max_runtime": 60}
    changes = [change.path for change in workloads.edit(actor=cast.dave, workload=train, patch=patch).changes]
    assert set(changes) == {"roles[0].replicas", "roles[0].memory_mib", "max_runtime"}
    for tab in ("", "/timeline"):
        shown = dave.get(f"/workloads/{train.pk}{tab}").content.decode()
        assert "Replicas: 2 → 1" in shown and "Max runtime: 1h → 1m" in shown, tab
        assert "Memory: 4 GiB → 6400 MiB" in shown, tab
        assert "roles[0]" not in shown


def test_errors_are_shown_and_the_input_is_preserved(dave: Client, train: Workload) -> None:
    form = form_of(dave.get(address(train)))
    form["document"] = form["document"].replace("priority: 50", "priority: 5000")
    answer = dave.post(address(train), {**form, "step": "save"}, headers=HTMX)
    assert answer.status_code == 422
    assert "priority: 5000" in answer.context["text"]
    assert "1 error" in answer.content.decode()
    train.refresh_from_db()
    assert train.priority == 50


def test_concurrent_edit_is_shown_before_it_is_overwritten(cast: Cast, dave: Client, train: Workload) -> None:
    form = form_of(dave.get(address(train)))
    workloads.edit(actor=cast.carol, workload=train, patch={"max_runtime": 60})
    form["document"] = form["document"].replace("priority: 50", "priority: 60")
    answer = dave.post(address(train), {**form, "step": "save"}, headers=HTMX)
    assert answer.status_code == 422
    shown = answer.content.decode()
    assert "changed while you were editing" in shown
    assert ">1m</span> → <strong>1h</strong>" in shown
    train.refresh_from_db()
    assert (train.priority, train.max_runtime) == (50, 60)
    assert dave.post(address(train), {**form_of(answer), "step": "save"}, headers=HTMX).status_code == 204
    train.refresh_from_db()
    assert (train.priority, train.max_runtime) == (60, 3600)


@pytest.mark.heavy
def test_workload_can_be_edited_as_a_training_job_manifest(cast: Cast, dave: Client) -> None:
    text = MANIFEST.read_text()
    workload = submission.submit(actor=cast.dave, document=yaml.safe_load(text))
    form = form_of(dave.get(address(workload)))
    form["document"] = text.replace("max-instance: 6", "max-instance: 5")
    answer = dave.post(address(workload), {**form, "step": "save"}, headers=HTMX)
    assert answer.status_code == 204, answer.content.decode()
    workload.refresh_from_db()
    (trainer,) = (role for role in workload.spec["roles"] if role["name"] == "trainer")
    assert trainer["max"] == 5


def test_edit_page_rejects_running_workloads_and_other_users(
    dave: Client, sign_in: SignIn, train: Workload
) -> None:
    assert sign_in("erin").get(address(train)).status_code == 403
    assert sign_in("grace").get(address(train)).status_code == 404
    Workload.objects.filter(pk=train.pk).update(phase="running")
    assert "Suspend it to edit it" in dave.get(address(train)).content.decode()
    assert 'id="action-edit"' not in dave.get(f"/workloads/{train.pk}").content.decode()
