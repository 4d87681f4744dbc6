"""Tests for copies of an array's pending tasks with the smallest change."""

import html
import re

import pytest
from django.test import Client

from projects.models import Workload, WorkloadArray
from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn
from tests.web.submit.test_submission_page import refresh_form
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


def test_smallest_change_of_an_array_opens_a_copy_of_its_pending_tasks_with_the_change(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    card = card_of(dave, sweep)
    assert "Copy the pending tasks with this change, then cancel the originals." in card
    page = dave.get(link_in(card))
    assert page.context["text"].startswith("name: sweep-copy\nproject: vision\npools:\n- local\n- spare\n")
    pending = Workload.objects.filter(array=sweep, phase="pending")
    copy = page.context["copy"]
    assert copy.count == pending.count() < sweep.task_count
    assert f"  tasks:\n  - {copy.indexes}\n" in page.context["text"]
    notice = page.content.decode().partition('id="array-copy"')[2].partition("</div>")[0]
    assert "Node pools: not set → local, spare." in " ".join(notice.split())


def test_submitted_copy_of_an_array_links_to_the_tasks_that_it_replaces(
    cast: Cast, sweep: WorkloadArray, sign_in: SignIn
) -> None:
    make.pool("spare")
    dave = sign_in("dave")
    page = dave.get(link_in(card_of(dave, sweep)))
    copy, document = page.context["copy"], page.context["text"]
    answer = refresh_form(dave, document, step="submit", **{"copied-tasks": copy.value})
    assert answer.headers["HX-Redirect"]
    new = WorkloadArray.objects.get(name="sweep-copy")
    assert new.task_count == copy.count
    message = text(dave, f"/arrays/{new.pk}").partition('class="notice warn"')[2]  # other messages disappear
    link = present(re.search(rf'href="([^"]+)">Cancel the {copy.count} tasks of sweep</a>', message))[1]
    form = dave.get(html.unescape(link)).content.decode()
    assert f'value="{copy.indexes}"' in form
    assert re.search('<input type="radio" name="choice" value="other"[^>]* checked', form)


@pytest.mark.parametrize("query", ["", "{", "[]", '{"kind": "x"}'])
def test_copy_of_an_array_without_a_valid_change_has_all_tasks(
    sweep: WorkloadArray, sign_in: SignIn, query: str
) -> None:
    page = sign_in("dave").get("/submit", {"like": str(sweep.pk), "change": query})
    assert page.context["copy"] is None and "name: sweep-copy" in page.context["text"]


def test_users_who_cannot_submit_are_not_offered_a_copy(sweep: WorkloadArray, sign_in: SignIn) -> None:
    assert "Copy pending tasks" not in card_of(sign_in("erin"), sweep)
