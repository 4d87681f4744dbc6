"""Tests for the expiry of temporary quota changes."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from berth.core.errors import Invalid
from projects.models import Quota, QuotaChange, QuotaExpiry
from projects.services import quotas
from projects.services.quotas import drafts, reverts
from projects.services.quotas.documents import read_draft
from projects.services.quotas.expiry import revert_expired_changes
from tests.cast import Cast, make_cast


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    made = make_cast()
    for project in (made.vision, made.speech):
        quotas.set_quota(actor=made.alice, owner=project, pool=made.pool, values={"gpu": 2})
    return made


def apply_change(cast: Cast, until: datetime, *gpus: tuple[str, int]) -> QuotaChange:
    document: dict[str, Any] = {
        "changes": [{"project": name, "pool": "local", "set": {"gpu": n}} for name, n in gpus],
        "expires_at": until.isoformat(),
    }
    change, _ = drafts.apply_draft(actor=cast.bob, draft=read_draft(cast.bob, document))
    assert change is not None
    return change


def gpus(cast: Cast) -> dict[str, int | None]:
    rows = Quota.objects.filter(project__isnull=False).order_by("project__name")
    return {row.owner.name: row.gpu_milli and row.gpu_milli // 1000 for row in rows}


def test_expired_quota_change_is_reverted_once(cast: Cast) -> None:
    until = timezone.now() + timedelta(days=3)
    change = apply_change(cast, until, ("vision", 8), ("speech", 1))
    assert revert_expired_changes(until - timedelta(minutes=1)) == 0
    assert gpus(cast) == {"speech": 1, "vision": 8}
    assert [
        revert_expired_changes(until + timedelta(minutes=1)),
        revert_expired_changes(until + timedelta(minutes=2)),
    ] == [
        1,
        0,
    ]
    assert gpus(cast) == {"speech": 2, "vision": 2}
    back = QuotaChange.objects.get(reverts=change.pk)
    assert (back.actor, QuotaExpiry.objects.get().outcome) == ("expiry", "")


def test_expiry_does_not_revert_quotas_edited_later(cast: Cast) -> None:
    until = timezone.now() + timedelta(days=3)
    apply_change(cast, until, ("vision", 8), ("speech", 1))
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
    revert_expired_changes(until)
    assert gpus(cast) == {"speech": 2, "vision": 5}
    assert (
        QuotaExpiry.objects.get().outcome
        == "Not reverted because they have been edited since: vision in pool local."
    )


def test_expiry_deletes_a_temporary_quota(cast: Cast) -> None:
    quotas.remove_quota(actor=cast.alice, quota=Quota.objects.get(project=cast.speech))
    until = timezone.now() + timedelta(hours=1)
    apply_change(cast, until, ("speech", 4))
    revert_expired_changes(until)
    assert gpus(cast) == {"vision": 2}


def test_expiry_skips_a_quota_change_that_was_already_reverted(cast: Cast) -> None:
    until = timezone.now() + timedelta(hours=1)
    change = apply_change(cast, until, ("vision", 8))
    reverts.revert(actor=cast.bob, change=change)
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 3})
    assert revert_expired_changes(until) == 1
    assert (gpus(cast)["vision"], QuotaExpiry.objects.get().outcome) == (3, "Reverted before it expired.")


def test_quota_change_of_a_deleted_project_expires_without_a_revert(cast: Cast) -> None:
    until = timezone.now() + timedelta(hours=1)
    apply_change(cast, until, ("speech", 8))
    Quota.objects.filter(project=cast.speech).delete()
    cast.speech.delete()
    assert [revert_expired_changes(until), revert_expired_changes(until)] == [1, 0]
    assert "speech has been deleted" in QuotaExpiry.objects.get().outcome


@pytest.mark.parametrize(
    "wrong", ["yesterday", "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "2026-12-01T00:00"]
)
def test_invalid_expiry_is_rejected(cast: Cast, wrong: str) -> None:
    document = {"changes": [{"project": "vision", "pool": "local", "set": {"gpu": 3}}], "expires_at": wrong}
    with pytest.raises(Invalid) as rejected:
        read_draft(cast.bob, document)
    assert [problem.path for problem in rejected.value.problems] == ["expires_at"]
