"""Tests for concurrent deletion of projects, departments and pools."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models.deletion import Collector

from berth.core.errors import BerthError, Conflict, Invalid, NotFound
from pools.models import NodePool
from projects.models import Department, Membership, Project, Quota, Schedule, Workload
from projects.services import quotas, schedules, tenants, workloads
from projects.services.people import members
from projects.services.quotas import write
from projects.services.schedules.values import ScheduleValues, check_values
from projects.services.workloads import submission_view
from projects.services.workloads.templates import delete_template, set_template
from scheduler.models import PodUtilization
from tests import factories as make
from tests.cast import Cast, make_cast, training
from tests.support.second_connection import run_on_second_connection


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    return make_cast()


def submit(cast: Cast) -> object:
    return workloads.submit(actor=cast.dave, project=cast.vision, document=training())


def set_quota(cast: Cast) -> object:
    return quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 1})


def grant(cast: Cast) -> object:
    return members.grant(actor=cast.alice, user=cast.frank.user, role="member", scope=cast.vision)


TRAINING = "command: x\nroles: [{gpu: 1}]\n"
WRITES = [submit, set_quota, grant]


@pytest.fixture
def skip_permission_check(monkeypatch: pytest.MonkeyPatch) -> None:
    # Skip the permission check, as if the user's roles had just been checked.
    for module in (submission_view, write, members, tenants):
        monkeypatch.setattr(module, "require", lambda *arguments: None)


@pytest.mark.parametrize("attempt", WRITES)
def test_writes_to_a_concurrently_deleted_project_are_rejected(
    cast: Cast, attempt: Callable[[Cast], object], skip_permission_check: None
) -> None:
    # The project is deleted between the permission check and the write, inside an outer transaction.
    run_on_second_connection(
        lambda: tenants.delete_project(actor=cast.alice, project=Project.objects.get(name="vision"))
    )
    assert not Project.objects.filter(name="vision").exists()
    with transaction.atomic(), pytest.raises(NotFound, match="has been deleted"):
        attempt(cast)
    assert not Workload.objects.exists()
    assert not Quota.objects.exists()


def test_quota_in_a_concurrently_deleted_pool_is_rejected(cast: Cast) -> None:
    run_on_second_connection(lambda: NodePool.objects.all().delete())
    with pytest.raises(NotFound, match="the pool local has been deleted"):
        set_quota(cast)


def test_project_in_a_concurrently_deleted_department_is_rejected(cast: Cast) -> None:
    empty = Department.objects.create(name="empty")
    run_on_second_connection(lambda: Department.objects.filter(name="empty").delete())
    with pytest.raises((NotFound, Invalid)):
        tenants.create_project(actor=cast.alice, department=empty, name="late")


def test_template_cannot_be_deleted_while_a_schedule_that_uses_it_is_created(cast: Cast) -> None:
    template = set_template(actor=cast.dave, project=cast.vision, name="train", text=TRAINING)
    values = ScheduleValues(cron="0 * * * *", template="train")

    def delete() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '200ms'")
            delete_template(actor=cast.dave, template=template)

    with transaction.atomic():
        schedules.set_schedule(actor=cast.dave, project=cast.vision, name="hourly", values=values)
        assert isinstance(run_on_second_connection(delete), OperationalError)
    with pytest.raises(Conflict, match="Schedule hourly uses this template"):
        delete_template(actor=cast.dave, template=template)


def test_schedule_is_rejected_if_its_template_is_deleted_after_the_check(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = set_template(actor=cast.dave, project=cast.vision, name="train", text=TRAINING)

    def check_then_delete(*arguments: Any) -> object:
        checked = check_values(*arguments)
        run_on_second_connection(lambda: delete_template(actor=cast.dave, template=template))
        return checked

    monkeypatch.setattr(schedules.control, "check_values", check_then_delete)
    with pytest.raises(Invalid, match="does not exist"):
        schedules.set_schedule(
            actor=cast.dave, project=cast.vision, name="hourly",
            values=ScheduleValues(cron="0 * * * *", template="train"),
        )  # fmt: skip
    assert not Schedule.objects.exists()


def test_second_deletion_of_a_project_is_rejected(cast: Cast) -> None:
    tenants.delete_project(actor=cast.alice, project=Project.objects.get(name="speech"))
    with pytest.raises(NotFound, match="has been deleted"):
        tenants.delete_project(actor=cast.alice, project=cast.speech)


def test_workload_can_be_deleted_while_its_pod_is_being_measured(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = make.workload(cast.vision, "train", phase="completed")
    pod = make.place(ended, make.node(cast.pool), [0], state="succeeded", ended_at=make.ago())
    outcomes: list[type[Exception] | None] = []

    def measure() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '500ms'")
        try:
            PodUtilization.objects.create(pod=pod, at=make.ago(), cpu_seconds=1, cpu_milli=1, memory_mib=1)
            outcomes.append(None)
        except DatabaseError as error:
            outcomes.append(type(error))

    collect = Collector.collect

    def collect_and_measure(collector: Collector, *arguments: Any, **options: Any) -> None:
        collect(collector, *arguments, **options)
        if not outcomes:
            run_on_second_connection(measure)

    monkeypatch.setattr(Collector, "collect", collect_and_measure)
    workloads.delete(actor=cast.alice, workload=ended)
    assert outcomes == [OperationalError], "the measurement waits for the deletion"
    assert not Workload.objects.exists()


def test_only_one_of_a_concurrent_submission_and_project_deletion_succeeds(cast: Cast) -> None:
    # Of two concurrent calls, the second gets an error, and no row refers to a deleted project.
    for number in range(8):
        project = Project.objects.create(name=f"p{number}", department=cast.research)
        barrier = threading.Barrier(2)
        answers: dict[str, Any] = {}

        def run(
            name: str, work: Callable[[], object], barrier: Any = barrier, answers: Any = answers
        ) -> None:
            barrier.wait(120)
            try:
                work()
                answers[name] = "done"
            except BerthError as error:
                answers[name] = type(error)
            except Exception as error:
                answers[name] = error
            finally:
                connection.close()

        project_to_submit = Project.objects.select_related("department").get(pk=project.pk)
        project_to_delete = Project.objects.select_related("department").get(pk=project.pk)
        submit_it = partial(
            workloads.submit, actor=cast.alice, project=project_to_submit, document=training()
        )
        delete_it = partial(tenants.delete_project, actor=cast.alice, project=project_to_delete)
        threads = [
            threading.Thread(target=run, args=("submit", submit_it)),
            threading.Thread(target=run, args=("delete", delete_it)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        allowed = [{"submit": "done", "delete": Conflict}, {"submit": NotFound, "delete": "done"}]
        assert answers in allowed
        assert Workload.objects.filter(project_id=project.pk).exists() == (answers["submit"] == "done")
    assert not Membership.objects.exclude(project__isnull=True).exclude(project__in=Project.objects.all())
