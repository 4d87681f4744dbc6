"""Tests that the mirrors of live workloads and pods always equal a full read."""

import random
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from berth.db.queries import prepared
from projects.models import Phase, Pod, Workload, WorkloadArray, WorkloadDeletion
from scheduler.loop.observe import mirror as mirrors
from scheduler.loop.observe.live_rows import POD_COLUMNS, PODS, WORKLOADS, WorkloadRow
from scheduler.loop.observe.mirror import Mirror
from scheduler.tasks import delete_expired
from tests.scheduler.stage import Stage

STEPS, WRITERS = 250, 4
OTHER_VALUES = {
    "project_id": "(SELECT max(id) FROM projects_project)",
    "name": "'other'",
    "phase": "'reserved'",
    "pending_since": "pending_since + interval '1 second'",
    "next_phase": "'pending'",
    "pools": "'{elsewhere}'",
    "start_refusal": "'refused'",
    "avoided_nodes": "'{elsewhere}'",
    "code_wait": "'Fetching code.'",
    "preemptible": "NOT preemptible",
    "submitted_at": "submitted_at + interval '1 second'",
    "requeued_at": "now()",
    "edits": "edits + 1",
    "started_at": "now()",
    "last_checkpoint_at": "now()",
    "stale_since": "now()",
    "backoff_until": "now()",
    "max_runtime": "77",
}
COPY = """
    INSERT INTO projects_workload
    SELECT (jsonb_populate_record(row, jsonb_build_object('id', %(id)s::text, 'name', %(id)s::text))).*
      FROM projects_workload AS row WHERE row.name = 'template'
"""


def full() -> dict[uuid.UUID, WorkloadRow]:
    fresh = Mirror(WORKLOADS)
    fresh.read()
    return fresh.rows


def write_without_trigger() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE projects_workload DISABLE TRIGGER USER")
        cursor.execute("UPDATE projects_workload SET priority = 77")
        cursor.execute("ALTER TABLE projects_workload ENABLE TRIGGER USER")


class Writer:
    def __init__(self, raw: psycopg.Connection[Any], chance: random.Random) -> None:
        self.raw, self.chance = raw, chance
        self.ids: list[uuid.UUID] = []
        self.savepoint = False

    def step(self) -> None:
        actions = [self.add, self.add, self.move, self.move, self.end, self.hold, self.explain, self.delete]
        actions += [self.commit, self.commit, self.roll_back, self.save, self.roll_back_to_savepoint]
        self.chance.choice(actions)()

    def _execute(self, statement: str, **values: Any) -> None:
        self.raw.execute(statement, values)

    def _update(self, assignments: str) -> None:
        if self.ids:
            pk = self.chance.choice(self.ids)
            self._execute(f"UPDATE projects_workload SET {assignments} WHERE id = %(id)s", id=pk)

    def add(self) -> None:
        self.ids.append(uuid.uuid4())
        self._execute(COPY, id=self.ids[-1])

    def move(self) -> None:
        phase = self.chance.choice(["pending", "reserved", "starting", "running"])
        self._update(f"held = false, phase = '{phase}', version = version + 1")

    def end(self) -> None:
        self._update("held = false, phase = 'completed', ended_at = now()")

    def hold(self) -> None:
        self._update("priority = 77 - priority")

    def explain(self) -> None:
        self._update("explanation = '{}', explained_at = now(), message = message || '.'")

    def delete(self) -> None:
        if self.ids and self.chance.random() < 0.3:
            self._execute("DELETE FROM projects_workload WHERE id = %(id)s", id=self.chance.choice(self.ids))

    def commit(self) -> None:
        self.raw.commit()
        self.savepoint = False

    def roll_back(self) -> None:
        self.raw.rollback()
        self.savepoint = False

    def save(self) -> None:
        self._execute("SAVEPOINT here")
        self.savepoint = True

    def roll_back_to_savepoint(self) -> None:
        if self.savepoint:
            self._execute("ROLLBACK TO SAVEPOINT here")


@pytest.fixture
def template(stage: Stage) -> Workload:
    return stage.submit("template")


@pytest.fixture
def writers(template: Workload, request: pytest.FixtureRequest) -> Iterator[list[Writer]]:
    values = connection.get_connection_params()
    for key in ("cursor_factory", "context", "pool"):
        values.pop(key, None)
    chance = random.Random(request.getfixturevalue("seed"))
    raws = [psycopg.connect(**values) for _ in range(WRITERS)]
    yield [Writer(raw, chance) for raw in raws]
    for raw in raws:
        raw.close()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(1, 20))])
def test_mirror_equals_a_full_read_while_transactions_overlap(writers: list[Writer], seed: int) -> None:
    chance, mirror = random.Random(seed), Mirror(WORKLOADS)
    before: dict[uuid.UUID, WorkloadRow] = {}
    sizes = set()
    for _ in range(STEPS):
        chance.choice(writers).step()
        if chance.random() < 0.5:
            changed = mirror.read()
            assert mirror.rows == full()
            assert changed == {
                pk for pk in before.keys() | mirror.rows.keys() if before.get(pk) != mirror.rows.get(pk)
            }
            before = dict(mirror.rows)
            sizes.add(len(before))
    assert len(sizes) > 3, "the writers did not change anything"


def test_change_to_any_mirrored_column_is_detected(template: Workload) -> None:
    mirror = Mirror(WORKLOADS)
    mirror.read()
    for name in WorkloadRow._fields[1:]:
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE projects_workload SET {name} = {OTHER_VALUES.get(name, f'{name} + 1')}")
        assert mirror.read() == {template.pk}, name
        assert mirror.rows == full()


def test_change_to_any_mirrored_column_of_a_pod_is_detected(stage: Stage) -> None:
    stage.submit("train")
    stage.loop.tick()
    stage.submit("pending")
    pod, mirror = Pod.objects.earliest("index"), Mirror(PODS)
    assert pod.pk in mirror.read()
    new_values = {
        "workload_id": "(SELECT id FROM projects_workload WHERE name = 'pending')",
        "role": "'other'",
        "state": "'stopping'",
        "node_id": "(SELECT max(id) FROM pools_node)",
        **{name: f"{name} + interval '1 second'" for name in ("since", "created_at", "started_at")},
    }
    changes = [("projects_pod", name, "id") for name in POD_COLUMNS[1:]]
    changes += [("scheduler_allocation", name, "pod_id") for name in ("devices", "gpu_milli")]
    new_values |= {"devices": "'{7}'", "gpu_milli": "500"}
    Pod.objects.update(started_at=timezone.now())
    mirror.read()
    for table, name, key in changes:
        with connection.cursor() as cursor:
            value = new_values.get(name, f"{name} + 1")
            cursor.execute(f"UPDATE {table} SET {name} = {value} WHERE {key} = %s", [pod.pk])
        assert mirror.read() == {pod.pk}, name
        fresh = Mirror(PODS)
        fresh.read()
        assert mirror.rows == fresh.rows


def test_deleted_and_ended_pods_are_removed_from_the_mirror(stage: Stage) -> None:
    stage.submit("train")
    stage.submit("eval")
    stage.loop.tick()
    ended, succeeded, deleted, live = Pod.objects.order_by("workload__name", "index")
    mirror = Mirror(PODS)
    assert mirror.read() == {ended.pk, succeeded.pk, deleted.pk, live.pk}
    Pod.objects.filter(pk=ended.pk).update(state="failed", ended_at=timezone.now())
    Pod.objects.filter(pk=succeeded.pk).update(state="succeeded", ended_at=timezone.now())
    assert mirror.read() == {ended.pk, succeeded.pk}
    assert mirror.rows.keys() == {succeeded.pk, deleted.pk, live.pk}
    deleted_id = deleted.pk
    deleted.delete()
    assert mirror.read() == {deleted_id}
    assert mirror.rows.keys() == {succeeded.pk, live.pk}


def test_held_tasks_are_not_mirrored(template: Workload) -> None:
    array = WorkloadArray.objects.create(project=template.project, name="sweep", spec={}, task_count=1)
    Workload.objects.update(array=array, array_index=0)
    mirror = Mirror(WORKLOADS)
    mirror.read()
    for held in (True, False, True):
        Workload.objects.update(held=held)
        assert mirror.read() == {template.pk}
        assert mirror.rows.keys() == (set() if held else {template.pk})


@pytest.mark.heavy
def test_mirror_drops_a_workload_that_ended_and_was_deleted_between_reads(template: Workload) -> None:
    mirror = Mirror(WORKLOADS)
    mirror.read()
    Workload.objects.update(phase=Phase.CANCELLED, ended_at=timezone.now())
    Workload.objects.all().delete()
    assert mirror.read() == {template.pk}
    assert mirror.rows == {}


def test_every_mirror_reads_a_deletion_record_before_it_expires(template: Workload) -> None:
    first, second = Mirror(WORKLOADS), Mirror(WORKLOADS)
    for mirror in (first, second):
        mirror.read()
    Workload.objects.all().delete()
    delete_expired()
    for mirror in (first, second):
        assert mirror.read() == {template.pk}
        assert mirror.rows == {}
    WorkloadDeletion.objects.update(deleted_at=timezone.now() - timedelta(days=2))
    assert delete_expired()["deletions"] >= 1
    assert not WorkloadDeletion.objects.exists()


@pytest.mark.heavy
def test_mirror_is_reloaded_after_an_hour_without_a_read(
    template: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(WORKLOADS)
    mirror.read()
    write_without_trigger()
    assert mirror.read() == set()
    monkeypatch.setattr(mirrors, "MAX_AGE_SECONDS", -1.0)
    assert mirror.read() == {template.pk}


def test_mirror_is_reloaded_on_a_new_database_connection(template: Workload) -> None:
    mirror = Mirror(WORKLOADS)
    mirror.read()
    write_without_trigger()
    assert mirror.read() == set()
    connection.close()
    assert mirror.read() == {template.pk}


@pytest.mark.heavy
def test_stored_explanations_do_not_count_as_changes(
    template: Workload, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(WORKLOADS)
    fetched: list[Any] = []
    mirror.read()
    Workload.objects.update(explanation={"position": 3}, reason="Other", message="other", gpu_milli_now=5)
    fetch = prepared.fetch_all

    def record_rows(*values: Any) -> Any:
        fetched.append(fetch(*values))
        return fetched[-1]

    monkeypatch.setattr(prepared, "fetch_all", record_rows)
    assert mirror.read() == set()
    assert [row[4] for row in fetched[0]] == [None]


@pytest.mark.heavy
def test_rows_of_a_rolled_back_transaction_are_discarded(template: Workload) -> None:
    mirror = Mirror(WORKLOADS)
    mirror.read()
    with transaction.atomic():
        Workload.objects.update(priority=77, phase=Phase.PENDING)
        assert mirror.read() == {template.pk}
        transaction.set_rollback(True)
    assert mirror.read() == {template.pk}
    assert mirror.rows == full()


def test_mirror_is_reloaded_after_the_database_server_is_replaced(template: Workload) -> None:
    mirror = Mirror(WORKLOADS)
    mirror.read()
    write_without_trigger()
    assert mirror.read() == set()
    mirror._server = None
    assert mirror.read() == {template.pk}
