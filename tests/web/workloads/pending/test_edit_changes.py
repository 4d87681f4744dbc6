"""Tests for the list of changes and the button of the edit page."""

import re
from html import unescape

import pytest
from django.test import Client

from pools.models import Node
from projects.models import Workload
from projects.services.workloads import submission
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


@pytest.fixture
def train(cast: Cast) -> Workload:
    make.node(cast.pool, gpus=4)
    return submission.submit(
        actor=cast.dave, project=cast.vision, document=training("train", priority=50, max_runtime=3600)
    )


@pytest.fixture
def dave(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("dave")


def edited(client: Client, workload: Workload, was: str, now: str, *, page: str = "") -> str:
    """Return the response to an edit of the document."""
    path = f"/workloads/{workload.pk}/edit"
    opened = client.get(path).context
    text = opened["text"].replace(was, now)
    assert text != opened["text"]
    form = {"document": text, "agreed": opened["text"], "version": workload.version, "step": "look"}
    return unescape(client.post(path + page, form, headers=HTMX).content.decode())


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.mark.parametrize(
    ("was", "now", "change"),
    [
        ("replicas: 2", "replicas: 0", "Replicas 2 → 0"),
        ("max_runtime: 1h", "max_runtime: soon", "Max runtime 1h → soon"),
    ],
)
def test_changes_stay_on_the_page_while_a_value_is_invalid(
    dave: Client, train: Workload, was: str, now: str, change: str
) -> None:
    answer = edited(dave, train, was, now)
    assert answer.index('id="faults-title"') < answer.index('id="changes-title"'), "errors come first"
    assert f"Changes {change}" in words_of(answer)
    assert "1 unsaved change" in words_of(answer) and "ueue time" not in words_of(answer)


def test_save_button_counts_the_errors(dave: Client, train: Workload) -> None:
    for was, now, label in (
        ("replicas: 2", "replicas: 0", "Show 1 error"),
        ("replicas: 2\n  gpu: 1", "replicas: 0\n  gpu: 1.5", "Show 2 errors"),
    ):
        answer = edited(dave, train, was, now)
        button = answer.partition('<span id="save-label" class="faulty"')[2].partition("</span>")[0]
        assert button.endswith(label)


def test_changes_and_prediction_name_a_priority_like_the_form(dave: Client, train: Workload) -> None:
    answer = edited(dave, train, "priority: 50", "priority: 125")
    assert "Priority 50 (default) → 125 (high), non-preemptible" in words_of(answer)
    assert '<option value="125" selected>125 (high), non-preemptible</option>' in answer
    prediction = edited(dave, train, "priority: 50", "priority: 125", page="/prediction")
    assert "at priority 125 (high), non-preemptible" in words_of(prediction)


def test_no_changes_are_listed_while_the_document_is_not_yaml(dave: Client, train: Workload) -> None:
    answer = edited(dave, train, "priority: 50", "priority: [")
    assert "changes-title" not in answer and "data-unchanged" not in answer


def test_error_is_shown_above_the_previous_value(dave: Client, train: Workload) -> None:
    answer = edited(dave, train, "replicas: 2", "replicas: 0")
    field = answer.partition('id="w-f-roles-0-at_least"')[2].partition('id="w-')[0]
    assert field.index('class="error"') < field.index("Previous value: 2")


@pytest.fixture
def full_node(cast: Cast, train: Workload) -> Node:
    """Fill the only node, so that new workloads stay pending."""
    running = make.workload(
        cast.vision, "runs", phase="running", run=1, pool=cast.pool, gpus=4, priority=200, preemptible=False,
        max_runtime=7200, started_at=make.ago(hours=1),
    )  # fmt: skip
    node = Node.objects.get()
    make.place(running, node, [0, 1, 2, 3])
    return node


@pytest.mark.usefixtures("full_node")
def test_new_queue_position_is_explained(cast: Cast, dave: Client, train: Workload) -> None:
    make.workload(cast.vision, "first", priority=45)
    prediction = edited(dave, train, "priority: 50", "priority: 40", page="/prediction")
    position = prediction.partition('id="position-reason"')[2].partition("</details>")[0]
    assert "1 → 2" in words_of(position) and "first is ahead because" in position


@pytest.mark.usefixtures("full_node")
def test_edit_is_not_blamed_for_workloads_submitted_since_the_last_cycle(
    cast: Cast, dave: Client, train: Workload
) -> None:
    stored = {"queue_position": 1, "expected_start": make.ago(hours=-0.5).isoformat()}
    Workload.objects.filter(pk=train.pk).update(explanation=stored)
    make.workload(cast.vision, "first", priority=60, max_runtime=3600, gpus=4)
    same_request = words_of(edited(dave, train, "'true'", "'sleep 1'", page="/prediction"))
    assert "Queue position 2" in same_request and "→" not in same_request
    lower = words_of(edited(dave, train, "priority: 50", "priority: 40", page="/prediction"))
    assert "Queue position 2" in lower and "→" not in lower
    higher = words_of(edited(dave, train, "priority: 50", "priority: 70", page="/prediction"))
    assert "Queue position 2 → 1" in higher


def test_gpu_count_is_stated_once(dave: Client, train: Workload) -> None:
    Workload.objects.update(explanation={"blockers": []})
    prediction = edited(dave, train, "replicas: 2", "replicas: 3", page="/prediction")
    assert "<dt>GPUs</dt>" not in prediction, "the list of changes states 2 → 3"
    prediction = edited(dave, train, "gpu: 1", "gpu: 2", page="/prediction")
    assert "GPUs 2 → 4" in words_of(prediction)


def test_save_button_for_an_unschedulable_edit_reads_save_anyway(dave: Client, train: Workload) -> None:
    never = edited(dave, train, "gpu: 1", "gpu: 9", page="/prediction")
    assert 'class="warns" hx-swap-oob="true">Save anyway</span>' in never
    assert 'Change <a href="#f-roles-0-gpu">GPUs per pod</a>.' in never
    assert 'id="f-roles-0-gpu-warning">No matching node has more than 4 GPUs.</span>' in never
    assert 'id="f-roles-0-gpu-stored">Previous value: 1</span>' in never
    assert 'id="f-roles-0-gpu-hint"' not in never, "the previous value stands in place of the hint"
    assert "save-label" not in edited(dave, train, "priority: 50", "priority: 60", page="/prediction")
    assert '<span id="save-label" hx-swap-oob="true">Save changes</span>' in edited(
        dave, train, "priority: 50", "priority: 60"
    )


def test_pools_are_listed_by_name(dave: Client, train: Workload) -> None:
    make.pool("spare")
    words = words_of(edited(dave, train, "command:", "pools: [local, spare]\ncommand:"))
    assert "Node pools" in words and "→ local, spare" in words and '["local"' not in words


def test_edit_page_explains_how_to_restore_a_changed_name(dave: Client, train: Workload) -> None:
    words = words_of(edited(dave, train, "name: train", "name: other"))
    assert "Cannot be edited. Set it to train again, or submit a new workload." in words


def test_save_button_warns_that_the_edit_resets_the_queue_time(dave: Client, train: Workload) -> None:
    label = '<span id="save-label" class="warns" hx-swap-oob="true">Save and reset queue time</span>'
    assert label in edited(dave, train, "replicas: 2", "replicas: 3")
    assert ">Save changes</span>" in edited(dave, train, "replicas: 2", "replicas: 1")
    patched = dave.get(f"/workloads/{train.pk}/edit", {"patch": '{"max_runtime": 7200}'})
    assert ">Save and reset queue time</span>" in patched.content.decode()


def test_added_and_removed_roles_are_named_with_their_size(dave: Client, train: Workload) -> None:
    added = "roles:\n- {name: helper, replicas: 2, gpu: 1}\n- {name: logger}"
    words = words_of(edited(dave, train, "roles:", added))
    assert "Changes Role helper added 2 replicas, 1 GPU each Role logger added 1 replica" in words
    renamed = words_of(
        edited(dave, train, "- replicas: 2", "- {name: leader, gpu: 1}\n- name: helper\n  replicas: 2")
    )
    assert "Role worker removed 2 replicas, 1 GPU each Role leader added 1 replica, 1 GPU" in words_of(
        renamed
    )


def test_added_notifications_are_listed_by_address(dave: Client, train: Workload) -> None:
    added = "notifications: [{to: dave@example.org}]\nroles:"
    assert "Notifications not set → dave@example.org" in words_of(edited(dave, train, "roles:", added))
