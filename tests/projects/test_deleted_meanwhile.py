"""Concurrent deletion gives both sides a clear answer."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from berth.core.errors import BerthError, Conflict, Invalid, NotFound
from pools.models import NodePool
from projects.models import Department, Membership, Project, Quota, Workload
from projects.services import quotas, tenants, workloads
from projects.services.people import members
from projects.services.quotas import write
from projects.services.workloads import submission
from tests.aside import aside
from tests.cast import Cast, make_cast, training


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    return make_cast()


def submitting(cast: Cast) -> object:
    return workloads.submit(acting=cast.dave, project=cast.vision, document=training())


def setting_a_quota(cast: Cast) -> object:
    return quotas.set_quota(acting=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 1})


def granting(cast: Cast) -> object:
    assert cast.frank.user is not None
    return members.grant(acting=cast.alice, user=cast.frank.user, role="member", scope=cast.vision)


WRITES = [submitting, setting_a_quota, granting]


@pytest.fixture
def permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for somebody whose roles were looked up just before."""
    for module in (submission, write, members, tenants):
        monkeypatch.setattr(module, "require", lambda *arguments: None)


@pytest.mark.parametrize("attempt", WRITES)
def test_writes_to_a_concurrently_deleted_project_raise_not_found(
    cast: Cast, attempt: Callable[[Cast], object], permitted: None
) -> None:
    """Deleted after the writer had looked, before it wrote; also inside a transaction around it."""
    aside(lambda: tenants.delete_project(acting=cast.alice, project=Project.objects.get(name="vision")))
    assert not Project.objects.filter(name="vision").exists()
    with transaction.atomic(), pytest.raises(NotFound, match="was deleted at the same moment"):
        attempt(cast)
    assert not Workload.objects.exists()
    assert not Quota.objects.exists()


def test_a_quota_in_a_pool_that_was_deleted_meanwhile_is_told_as_that(cast: Cast) -> None:
    aside(lambda: NodePool.objects.all().delete())
    with pytest.raises(NotFound, match="the pool local was deleted"):
        setting_a_quota(cast)


def test_a_project_in_a_department_that_was_deleted_meanwhile(cast: Cast) -> None:
    empty = Department.objects.create(name="empty")
    aside(lambda: Department.objects.filter(name="empty").delete())
    with pytest.raises((NotFound, Invalid)):
        tenants.create_project(acting=cast.alice, department=empty, name="late")


def test_one_of_two_who_delete_is_told_that_it_is_gone(cast: Cast) -> None:
    tenants.delete_project(acting=cast.alice, project=Project.objects.get(name="speech"))
    with pytest.raises(NotFound, match="already deleted"):
        tenants.delete_project(acting=cast.alice, project=cast.speech)


def test_submitting_and_deleting_at_once_either_comes_first(cast: Cast) -> None:
    """Many times at once: whoever comes second is told so, and nobody refers to what is not there."""
    for number in range(8):
        project = Project.objects.create(name=f"p{number}", department=cast.research)
        together = threading.Barrier(2)
        answers: dict[str, Any] = {}

        def run(
            name: str, work: Callable[[], object], together: Any = together, answers: Any = answers
        ) -> None:
            together.wait(10)
            try:
                work()
                answers[name] = "done"
            except BerthError as error:
                answers[name] = type(error)
            except Exception as error:
                answers[name] = error
            finally:
                connection.close()

        given = Project.objects.select_related("department").get(pk=project.pk)
        other = Project.objects.select_related("department").get(pk=project.pk)
        threads = [
            threading.Thread(
                target=run,
                args=("submit", lambda given=given: workloads.submit(
                    acting=cast.alice, project=given, document=training())),
            ),
            threading.Thread(
                target=run,
                args=("delete", lambda other=other: tenants.delete_project(acting=cast.alice, project=other)),
            ),
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        allowed = [{"submit": "done", "delete": Conflict}, {"submit": NotFound, "delete": "done"}]
        assert answers in allowed
        assert Workload.objects.filter(project_id=project.pk).exists() == (answers["submit"] == "done")
    assert not Membership.objects.exclude(project__isnull=True).exclude(project__in=Project.objects.all())
