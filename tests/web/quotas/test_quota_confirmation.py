"""Tests for the questions before a quota edit evicts workloads or deletes quotas."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from pools.models import Node
from projects.models import Quota, QuotaChange, QuotaExpiry
from projects.services import quotas
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn
from tests.web.quotas.test_quota_grid import GRID_URL, draft_form

HTMX = {"HX-Request": "true"}
ADDRESS = "/quotas/projects/vision/local"


@pytest.fixture
def busy_cast(cast: Cast) -> Cast:
    """Create a pending vision workload that reclaims the GPUs of speech/holder once vision has a quota."""
    make.quota(cast.research, cast.pool, 2)
    make.quota(cast.vision, cast.pool, 0)
    make.node(cast.pool)
    holder = make.workload(
        cast.speech, "holder", phase="running", gpus=1, replicas=2, run=1, started_at=make.ago(minutes=30)
    )
    for device in range(2):
        make.place(holder, Node.objects.get(pool=cast.pool), [device])
    make.workload(cast.vision, "waits", gpus=1, replicas=2)
    return cast


def quota_form(cast: Cast, **changes: Any) -> dict[str, Any]:
    quota = Quota.objects.get(project=cast.vision)
    return {"gpu": 2, "weight": 1, "over_quota": "on", "version": quota.version, "seen": "{}", **changes}


def vision_gpus(cast: Cast) -> int | None:
    return Quota.objects.get(project=cast.vision).gpu_milli


def test_draft_that_evicts_is_applied_only_after_confirmation(busy_cast: Cast, sign_in: SignIn) -> None:
    bob, sent = sign_in("bob"), {**draft_form([(busy_cast.vision, "local", "gpu", "2")]), "do": "apply"}
    question = bob.post(GRID_URL, sent).json()
    assert "Evict 1 workload?" in question["question"]
    assert "Evicts speech/holder (2 GPUs" in question["question"]
    assert "applied" not in question and vision_gpus(busy_cast) == 0
    assert bob.post(GRID_URL, {**sent, "confirmed": question["tag"]}).json()["applied"] == "1 quota saved."
    assert vision_gpus(busy_cast) == 2000


def test_confirmation_applies_only_to_the_quota_versions_that_were_shown(
    busy_cast: Cast, sign_in: SignIn
) -> None:
    bob, cells = sign_in("bob"), [(busy_cast.vision, "local", "gpu", "2")]
    first = {**draft_form(cells), "do": "apply"}
    tag = bob.post(GRID_URL, first).json()["tag"]
    quotas.set_quota(
        actor=busy_cast.alice, owner=busy_cast.vision, pool=busy_cast.pool, values={"limit": {"gpu": 8}}
    )
    assert bob.post(GRID_URL, {**first, "confirmed": tag}).status_code == 412
    again = bob.post(GRID_URL, {**draft_form(cells), "do": "apply", "confirmed": tag}).json()
    assert "question" in again and again["tag"] != tag, "the new versions have not been confirmed"
    assert vision_gpus(busy_cast) == 0


def test_quota_change_that_evicts_is_confirmed_in_a_dialog(busy_cast: Cast, sign_in: SignIn) -> None:
    bob, sent = sign_in("bob"), quota_form(busy_cast)
    question = bob.post(ADDRESS, sent, headers=HTMX)
    text = question.content.decode()
    assert question["HX-Retarget"] == "#dialog"
    assert "Evict 1 workload?" in text and "speech/holder" in text
    assert f'<input type="hidden" name="confirmed" value="{sent["version"]}">' in text
    assert '<input type="hidden" name="gpu" value="2">' in text
    assert vision_gpus(busy_cast) == 0
    assert "<html" in bob.post(ADDRESS, sent).content.decode(), "the question is a page without scripts"
    saved = bob.post(ADDRESS, {**sent, "confirmed": sent["version"]}, headers=HTMX)
    assert saved.status_code == 204 and vision_gpus(busy_cast) == 2000


def test_confirmed_quota_form_shows_a_conflict_with_a_later_change(busy_cast: Cast, sign_in: SignIn) -> None:
    bob, sent = sign_in("bob"), quota_form(busy_cast)
    assert "Evict 1 workload?" in bob.post(ADDRESS, sent, headers=HTMX).content.decode()
    quotas.set_quota(actor=busy_cast.alice, owner=busy_cast.vision, pool=busy_cast.pool, values={"gpu": 1})
    for confirmed in ({}, {"confirmed": sent["version"]}):
        answer = bob.post(ADDRESS, {**sent, **confirmed}, headers=HTMX)
        assert answer.status_code == 412
        assert "Someone else changed this quota" in answer.content.decode()
    assert vision_gpus(busy_cast) == 1000


def test_quota_form_without_evictions_is_saved_without_a_dialog(busy_cast: Cast, sign_in: SignIn) -> None:
    sent = quota_form(busy_cast, gpu=0, limit_gpu=4)
    assert sign_in("bob").post(ADDRESS, sent, headers=HTMX).status_code == 204
    assert Quota.objects.get(project=busy_cast.vision).limit_gpu_milli == 4000


def test_quota_deletion_lists_the_workloads_it_would_evict(busy_cast: Cast, sign_in: SignIn) -> None:
    cast = busy_cast
    holding = make.quota(cast.speech, cast.pool, 2)
    Quota.objects.filter(project=cast.vision).update(gpu_milli=2000)
    bob, address = sign_in("bob"), "/quotas/projects/speech/local/delete"
    text = bob.get(address, headers=HTMX).content.decode()
    assert "Delete the quota of speech in pool local?" in text
    assert "Evicts speech/holder (2 GPUs" in text
    quotas.set_quota(actor=cast.alice, owner=cast.speech, pool=cast.pool, values={"rank": 3})
    assert bob.post(address, {"version": holding.version}, headers=HTMX).status_code == 412
    assert bob.post(address, {"version": holding.version + 1}, headers=HTMX).status_code == 204
    assert not Quota.objects.filter(project=cast.speech).exists()


def test_quota_form_records_a_comment_and_an_expiry(busy_cast: Cast, sign_in: SignIn) -> None:
    bob = sign_in("bob")
    due = (timezone.now() + timedelta(days=2)).replace(second=0, microsecond=0)
    sent = quota_form(busy_cast, gpu=0, limit_gpu=4, comment="holiday")
    past = bob.post(ADDRESS, {**sent, "until": "2020-01-01T00:00"}, headers=HTMX)
    assert past.status_code == 422
    assert "This time is in the past. Enter a later time." in past.content.decode()
    assert "Expires (UTC)</label>" in past.content.decode()
    assert bob.post(ADDRESS, {**sent, "until": f"{due:%Y-%m-%dT%H:%M}"}, headers=HTMX).status_code == 204
    change = QuotaChange.objects.latest("pk")
    assert (change.comment, present(QuotaExpiry.objects.get()).due_at) == ("holiday", due)


def test_quota_form_rejects_an_expiry_without_a_change(busy_cast: Cast, sign_in: SignIn) -> None:
    bob = sign_in("bob")
    due = timezone.now() + timedelta(days=2)
    stored = {**quota_form(busy_cast, gpu=0), "until": f"{due:%Y-%m-%dT%H:%M}"}
    answer = bob.post(ADDRESS, stored, headers=HTMX)
    assert answer.status_code == 422
    assert "Change a value too" in answer.content.decode()
    assert not QuotaExpiry.objects.exists()


def test_quota_deleted_while_its_form_is_open_is_not_created_again(busy_cast: Cast, sign_in: SignIn) -> None:
    sent = quota_form(busy_cast, gpu=6)
    Quota.objects.filter(project=busy_cast.vision).delete()
    answer = sign_in("bob").post(ADDRESS, sent, headers=HTMX)
    assert answer.status_code == 412
    assert "The quota was deleted." in answer.content.decode()
    assert not Quota.objects.filter(project=busy_cast.vision).exists()


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("gpu", "-2", "-2 is not valid. Enter 0 to 1,000,000,000 in steps of 0.001, or leave the field"),
        ("memory_mib", "1.5", "1.5 is not valid. Enter 0 to 1,000,000,000,000 in whole MiB, or leave"),
        ("weight", "-1", "-1 is not valid. Enter 0 to 1,000,000."),
        ("rank", "5000", "5,000 is not valid. Enter -1000 to 1000, or leave the field empty to inherit"),
    ],
)
def test_quota_form_states_the_allowed_values_in_words(
    busy_cast: Cast, sign_in: SignIn, field: str, text: str, sentence: str
) -> None:
    answer = sign_in("bob").post(ADDRESS, quota_form(busy_cast, **{field: text}), headers=HTMX)
    assert answer.status_code == 422
    assert sentence in answer.content.decode() and "null" not in answer.content.decode()
