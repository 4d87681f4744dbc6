"""Tests for setting and removing quotas."""

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.core.errors import Invalid, PreconditionFailed
from projects.models import Audit, Quota, RemovedQuota
from projects.services import quotas
from tests.cast import Cast


def test_conflicting_edit_returns_the_current_values(cast: Cast) -> None:
    quota = quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 5}, expected_version=1)
    with pytest.raises(PreconditionFailed) as rejected:
        quotas.set_quota(
            actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 6}, expected_version=1
        )
    assert rejected.value.extra["current"]["gpu"] == 5
    quota.refresh_from_db()
    assert quota.gpu_milli == 5000


def test_nan_and_infinity_are_rejected_in_quotas(cast: Cast) -> None:
    for values in ({"gpu": float("nan")}, {"weight": {"gpu": float("inf")}}):
        with pytest.raises(Invalid):
            quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values=values)


def test_every_quota_change_is_audited_with_old_and_new_values(cast: Cast) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    quota = quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
    quotas.remove_quota(actor=cast.bob, quota=quota)
    removed, edited, created = Audit.objects.all()
    assert (edited.actor, edited.before, edited.after) == ("bob", {"gpu": 4}, {"gpu": 5})
    assert (created.actor, removed.action) == ("alice", "remove_quota")


def test_database_rejects_a_quota_without_exactly_one_owner(cast: Cast) -> None:
    for owners in ({}, {"department": cast.research, "project": cast.vision}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Quota.objects.create(pool=cast.pool, **owners)


def test_database_rejects_changes_to_audit_rows(cast: Cast) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    for attempt in (lambda: Audit.objects.update(actor="nobody"), lambda: Audit.objects.all().delete()):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            attempt()


def test_version_of_a_deleted_quota_is_never_reused(cast: Cast) -> None:
    first = quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    old_version = first.version
    quotas.remove_quota(actor=cast.alice, quota=first)
    second = quotas.set_quota(
        actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 1}, expected_version=0
    )
    assert second.version > old_version
    with pytest.raises(PreconditionFailed):
        quotas.set_quota(
            actor=cast.alice,
            owner=cast.vision,
            pool=cast.pool,
            values={"gpu": 6},
            expected_version=old_version,
        )
    with pytest.raises(PreconditionFailed):
        quotas.remove_quota(actor=cast.alice, quota=second, expected_version=old_version)


Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["set", "remove"]), st.integers(0, 3)), min_size=2, max_size=10)


@pytest.mark.heavy
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_different_quotas_never_have_the_same_version(cast: Cast, steps: list[Step]) -> None:
    Quota.objects.filter(project=cast.vision).delete()
    RemovedQuota.objects.filter(project=cast.vision).delete()
    seen: dict[int, object] = {}
    for step, gpus in steps:
        present = Quota.objects.filter(project=cast.vision).first()
        if step == "set":
            quota = quotas.set_quota(
                actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": gpus}
            )
            content = (quota.pk, quotas.quota_values(quota))
            assert seen.setdefault(quota.version, content) == content
        elif present is not None:
            quotas.remove_quota(actor=cast.alice, quota=present)
