"""Tests for copies of an array's pending tasks with the smallest change."""

import html
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.db.models.functions import Mod
from django.test import Client

from berth.core.spec.sections.arrays import compress
from pools.models import NodePool
from projects.models import Membership, Workload, WorkloadArray
from projects.services import arrays
from projects.services.arrays import replacement
from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast, training
from tests.support.present import present
from tests.web.conftest import SignIn
from tests.web.submit.test_accepted_predictions import evicting_prediction
from tests.web.submit.test_submission_page import HTMX, refresh_form
from tests.web.workloads.arrays.test_array_pages import text

CHANGE = {
    "kind": "pool_allowed", "subject": "spare", "resource": "", "pool": "", "before": None, "after": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _smallest_change(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = RenderedChange("found", "It would start now.", CHANGE, action="Also allow pool spare")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)


def card_of(client: Client, array: WorkloadArray) -> str:
    task = Workload.objects.filter(array=array, phase="pending", held=False).order_by("array_index")[0]
    return client.get(f"/workloads/{task.pk}/smallest-change?page=array").content.decode()


def link_in(card: str) -> str:
    return html.unescape(present(re.search(r'href="([^"]+)">Copy pending tasks</a>', card))[1])


def test_smallest_change_of_an_array_links_to_a_changed_copy_of_its_pending_tasks(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    card = card_of(dave, sweep)
    assert "The next task would start now" in card
    assert re.search(r"Copy with this change: \w[^<]+ would be queued\.</span>", card)
    page = dave.get(link_in(card))
    assert page.context["text"].startswith("name: sweep-copy\nproject: vision\npools:\n- local\n- spare\n")
    pending = Workload.objects.filter(array=sweep, phase="pending")
    copy = page.context["copy"]
    assert copy.count == pending.count() < sweep.task_count
    indexes = compress(index or 0 for index in pending.values_list("array_index", flat=True))
    assert f"  tasks:\n  - {indexes}\n" in page.context["text"]
    notice = page.content.decode().partition('id="array-copy"')[2].partition("</div>")[0]
    assert "Node pools: not set → local, spare." in " ".join(notice.split())


def cancel_link(client: Client, array: WorkloadArray) -> str:
    """Submit the offered copy. Return the URL of the form that cancels the original tasks."""
    page = client.get(link_in(card_of(client, array)))
    copy, document = page.context["copy"], page.context["text"]
    answer = refresh_form(client, document, step="submit", **{"copied-tasks": copy.value})
    assert answer.headers["HX-Redirect"]
    new = WorkloadArray.objects.get(name="sweep-copy")
    assert new.task_count == copy.count
    message = text(client, f"/arrays/{new.pk}").partition('class="notice warn"')[
        2
    ]  # other messages disappear
    link = present(re.search(rf'href="([^"]+)">Cancel the {copy.count} tasks of sweep</a>', message))[1]
    return html.unescape(link)


def live_indexes(array: WorkloadArray) -> set[int | None]:
    tasks = Workload.objects.filter(array=array).exclude(phase__in=("completed", "failed", "cancelled"))
    return set(tasks.values_list("array_index", flat=True))


def test_submitted_copy_of_an_array_links_to_the_tasks_that_it_replaces(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    link = cancel_link(dave, sweep)
    form = dave.get(link).content.decode()
    assert re.search('<input type="radio" name="choice" value="replaced"[^>]* checked', form)
    assert "116 unfinished tasks that sweep-copy replaces" in form
    assert re.search('<span data-shown-for="choice=replaced">Cancel 116 tasks</span>', form)
    assert live_indexes(sweep) == set(range(3, 120))
    dave.post(link, dict(parse_qsl(urlsplit(link).query)))
    assert live_indexes(sweep) == {3}, "the running task has no copy"


LABEL = r'<span id="submit-label"[^>]*>([^<]+)</span>'


def label_of(answer: Any) -> str:
    return present(re.search(LABEL, answer.content.decode()))[1]


@pytest.mark.heavy
def test_copy_of_an_array_cancels_the_originals_that_are_still_pending(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    copied = {"copied-tasks": page.context["copy"].value}
    assert label_of(page) == "Submit and cancel 116 originals"
    assert re.search(r'class="button primary" name="step" value="replace">', page.content.decode())
    document = page.context["text"]
    assert label_of(refresh_form(dave, document, **copied)) == "Submit and cancel 116 originals"
    Workload.objects.filter(array=sweep, array_index=4).update(phase="running", run=1, held=False)
    assert label_of(refresh_form(dave, document, **copied)) == "Submit and cancel 115 originals"
    evicts = {"predicted": evicting_prediction(cast, document)}
    question = refresh_form(dave, document, **copied, **evicts, step="replace").content.decode()
    assert "115 pending tasks of sweep will be cancelled." in question
    answer = refresh_form(dave, document, **copied, step="replace")
    new = WorkloadArray.objects.get(name="sweep-copy")
    assert answer.headers["HX-Redirect"] == f"/arrays/{new.pk}" and new.task_count == 116
    assert live_indexes(sweep) == {3, 4}
    message = " ".join(text(dave, f"/arrays/{new.pk}").split())
    assert "115 pending tasks of sweep cancelled." in message
    assert ">Cancel the 1 task of sweep</a> that it replaces." in message, "task 4 has started"


def test_copy_of_an_array_can_be_submitted_without_cancelling_the_originals(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    assert 'name="step" value="submit">Submit copy only</button>' in page.content.decode()
    cancel_link(dave, sweep)
    assert live_indexes(sweep) == set(range(3, 120))


def test_originals_stay_pending_if_the_copy_is_rejected(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    document = page.context["text"].replace("sweep-copy", "sweep")
    answer = refresh_form(dave, document, step="replace", **{"copied-tasks": page.context["copy"].value})
    assert answer.status_code == 422
    assert live_indexes(sweep) == set(range(3, 120))


def test_copy_is_not_stored_if_cancelling_the_originals_fails(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    dave.raise_request_exception = False

    def crash(**_: object) -> int:
        raise RuntimeError

    monkeypatch.setattr(replacement, "cancel", crash)
    copied = {"copied-tasks": page.context["copy"].value}
    assert refresh_form(dave, page.context["text"], step="replace", **copied).status_code == 500
    assert not WorkloadArray.objects.filter(name="sweep-copy").exists()


def test_copy_is_not_submitted_if_the_user_can_no_longer_cancel_the_originals(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    Membership.objects.filter(user=cast.erin.user).update(role="member")
    page = sign_in("dave").get(link_in(card_of(sign_in("dave"), sweep)))
    copied = {"copied-tasks": page.context["copy"].value}
    answer = refresh_form(sign_in("erin"), page.context["text"], step="replace", **copied)
    assert answer.status_code == 422 and "Nothing was submitted" in answer.content.decode()
    assert not WorkloadArray.objects.filter(name="sweep-copy").exists()
    assert live_indexes(sweep) == set(range(3, 120))


def test_edited_copy_cancels_only_the_originals_of_the_tasks_it_contains(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    copied = {"copied-tasks": page.context["copy"].value}
    document = page.context["text"].replace("- 4-119", "- 10-11\n  - 300")
    assert label_of(refresh_form(dave, document, **copied)) == "Submit and cancel 2 originals"
    without = document.partition("array:")[0]
    assert label_of(refresh_form(dave, without, **copied)) == "Submit workload"
    refresh_form(dave, document, step="replace", **copied)
    assert live_indexes(sweep) == {*range(3, 120)} - {10, 11}


def test_submit_button_of_an_unschedulable_array_copy_counts_the_originals(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    for pool in NodePool.objects.all():
        make.node(pool, gpus=2)
        make.quota(cast.research, pool, 64)
        make.quota(cast.vision, pool, 64)
    document = re.sub(r"gpu: \d+", "gpu: 9", page.context["text"])
    form = {"document": document, "copied-tasks": page.context["copy"].value}
    answer = dave.post("/submit/prediction", form, headers=HTMX)
    assert label_of(answer) == "Submit anyway and cancel 116 originals"


@pytest.mark.heavy
def test_cancel_link_for_many_original_tasks_is_short(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    document = {**training("sweep", array={"tasks": 1600}), "project": "vision"}
    sweep = arrays.submit(actor=cast.dave, document=document).array
    odd = Workload.objects.filter(array=sweep).annotate(odd=Mod("array_index", 2)).filter(odd=1)
    odd.update(phase="running", run=1, held=False)
    dave = sign_in("dave")
    link = cancel_link(dave, sweep)
    assert len(link) < 200
    choice = dict(parse_qsl(urlsplit(link).query))
    cost = dave.get(link, headers={"HX-Request": "true", "HX-Target": "stop-cost"})
    assert cost.status_code == 200 and "will be lost" not in cost.content.decode()
    Workload.objects.filter(array=sweep, array_index=0).update(phase="running", run=1, held=False)
    answer = dave.post(urlsplit(link).path, choice, headers={"HX-Request": "true"})
    assert "800 tasks of sweep cancelled." in answer.headers["HX-Trigger"]
    stopping = Workload.objects.filter(array=sweep, array_index=0, phase="stopping", next_phase="cancelled")
    assert stopping.exists(), "the task has a copy, although it has started in the meantime"
    assert Workload.objects.filter(array=sweep, phase="running").count() == 800


@pytest.mark.heavy
def test_cancel_link_selects_no_tasks_after_the_copy_was_deleted(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    link = cancel_link(dave, sweep)
    Workload.objects.filter(array__name="sweep-copy").delete()
    WorkloadArray.objects.filter(name="sweep-copy").delete()
    form = dave.get(link).content.decode()
    assert re.search('<input type="radio" name="choice" value="other"[^>]* checked', form)
    assert dave.post(link, dict(parse_qsl(urlsplit(link).query))).status_code == 422
    assert live_indexes(sweep) == set(range(3, 120))


def test_huge_task_ranges_in_the_hidden_input_are_ignored(sweep: WorkloadArray, sign_in: SignIn) -> None:
    ranges = ",".join(["0-999999"] * 300)
    page = sign_in("dave").post("/submit", {"document": "name: x", "copied-tasks": f"{sweep.pk} {ranges}"})
    assert page.status_code == 200 and page.context["copy"] is None


LOWERED = '"kind": "request_lowered", "subject": "worker"'


@pytest.mark.parametrize(
    "query",
    [
        "", "{", "[]", '{"kind": "x"}', '{"kind": []}',
        f'{{{LOWERED}, "resource": "limit.cpu", "after": "x"}}',
        f'{{{LOWERED}, "resource": "limit.cpu"}}',
        f'{{{LOWERED}, "resource": "limit.name", "after": 1}}',
        f'{{{LOWERED}, "resource": "gpu", "after": NaN}}',
        f'{{{LOWERED}, "resource": ["gpu"], "after": 1}}',
        '{"kind": "priority_raised", "after": []}',
        '{"kind": "max_runtime_lowered", "after": "x"}',
        '{"kind": "pool_allowed", "subject": {}}',
    ],
)  # fmt: skip
def test_array_copy_without_a_valid_change_includes_all_tasks(
    sweep: WorkloadArray, sign_in: SignIn, query: str
) -> None:
    page = sign_in("dave").get("/submit", {"like": str(sweep.pk), "change": query})
    assert page.context["copy"] is None and "name: sweep-copy" in page.context["text"]


@pytest.mark.parametrize("resource", ["gpu", "limit.cpu", "memory_mib", "replicas"])
def test_array_copy_with_an_excessive_amount_shows_an_error(
    sweep: WorkloadArray, sign_in: SignIn, resource: str
) -> None:
    change = f'{{{LOWERED}, "resource": "{resource}", "after": 1{"0" * 400}}}'
    page = sign_in("dave").get("/submit", {"like": str(sweep.pk), "change": change})
    assert page.status_code == 200 and page.context["answer"].problems


def test_users_who_cannot_submit_are_not_offered_a_copy(sweep: WorkloadArray, sign_in: SignIn) -> None:
    assert "Copy pending tasks" not in card_of(sign_in("erin"), sweep)


def test_users_who_cannot_cancel_the_originals_are_not_offered_a_copy(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    Membership.objects.filter(user=cast.erin.user).update(role="member")
    link, colleague = link_in(card_of(sign_in("dave"), sweep)), sign_in("erin")
    card = card_of(colleague, sweep)
    assert "Copy pending tasks" not in card and "can replace the pending tasks" not in card
    page = colleague.get(link)
    assert page.context["copy"] is None and 'id="array-copy"' not in page.content.decode()
    assert colleague.post("/submit", {"copied-tasks": f"{sweep.pk} 5"}).context["copy"] is None
