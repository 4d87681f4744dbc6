"""Tests for setting and removing quotas."""

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.core.errors import Forbidden, Invalid, PreconditionFailed
from projects.models import Audit, Quota, RemovedQuota
from projects.services import quotas
from tests.cast import Cast


def test_quota_edit_preserves_other_values(cast: Cast) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4, "weight": 2})
    quota = quotas.set_quota(
        actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"limit": {"gpu": 6.5}}
    )
    assert (quota.gpu_milli, quota.limit_gpu_milli, quota.weight_gpu, quota.version) == (4000, 6500, 2.0, 2)


def test_conflicting_edit_returns_the_current_values(cast: Cast) -> None:
    quota = quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 5}, expected_version=1)
    with pytest.raises(PreconditionFailed) as refused:
        quotas.set_quota(
            actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 6}, expected_version=1
        )
    assert refused.value.extra["current"]["gpu"] == 5
    quota.refresh_from_db()
    assert quota.gpu_milli == 5000


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"gpu": -1}, "gpu"),
        ({"gpu": float("nan")}, "gpu"),
        ({"gpu": True}, "gpu"),
        ({"gpu": "8"}, "gpu"),
        ({"gpu": 0.0001}, "gpu"),
        ({"cpu": 1e30}, "cpu"),
        ({"gpus": 8}, "gpus"),
        ({"limit": {"disk": 1}}, "limit.disk"),
        ({"limit": 3}, "limit"),
        ({"weight": -1}, "weight"),
        ({"weight": {"gpu": float("inf")}}, "weight.gpu"),
        ({"over_quota": "yes"}, "over_quota"),
        ({"rank": 1.5}, "rank"),
        ({"rank": 5000}, "rank"),
        ({"gpu": 8, "limit": {"gpu": 4}}, "gpu"),
        ({"gpu": None, "rank": "first"}, "rank"),
    ],
)
def test_error_names_the_invalid_value_and_nothing_is_stored(
    cast: Cast, values: dict[str, object], path: str
) -> None:
    with pytest.raises(Invalid) as refused:
        quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values=values)
    assert path in [problem.path for problem in refused.value.problems]
    assert not Quota.objects.exists()
    assert not Audit.objects.filter(action="set_quota").exists()


def test_department_admin_cannot_set_the_departments_quota(cast: Cast) -> None:
    with pytest.raises(Forbidden):
        quotas.set_quota(actor=cast.bob, owner=cast.research, pool=cast.pool, values={"gpu": 100})


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


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_quota_version_never_identifies_two_different_contents(cast: Cast, steps: list[Step]) -> None:
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
