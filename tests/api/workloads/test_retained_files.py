"""Tests for the files of failed pods over REST."""

import io
import tarfile
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from berth.server.wiring import Wiring
from pools.runtimes.base import RuntimeFailure
from projects.models import Audit, Pod
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.fakes.runtime import FakeRuntime

FILES = {"pod/a.txt": b"alpha\n", "pod/code/b.bin": b"\0" * 5_000_000, "workspace/empty": b""}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(
        "scheduler.api.files.retained_files.load_wiring", lambda: Wiring(fake.clock, {}, {"fake": fake})
    )
    return fake


@pytest.fixture
def pod(cast: Cast, runtime: FakeRuntime) -> Pod:
    return leave_failed_pod(cast, runtime)


def leave_failed_pod(cast: Cast, runtime: FakeRuntime) -> Pod:
    workload = make.workload(cast.vision, "train", phase="failed", run=1, submitted_by=cast.dave.user)
    pod = make.place(workload, make.node(cast.pool, gpus=2), [0])
    now = timezone.now()
    Pod.objects.filter(pk=pod.pk).update(
        state="failed", ended_at=now, exit_code=3, files_until=now + timedelta(hours=1)
    )
    runtime.stop(str(pod.pk), 0)
    runtime.files[str(pod.pk)] = dict(FILES)
    pod.refresh_from_db()
    return pod


def files(caller: Caller, owner: Pod, part: str = "", /, **query: Any) -> Any:
    return caller.get(f"workloads/{owner.workload_id}/files{part}?{urlencode(query)}")


def test_files_are_paginated_and_can_be_limited_to_a_path(dave: Caller, pod: Pod) -> None:
    first = files(dave, pod, limit=2).json()
    assert [item["path"] for item in first["items"]] == ["pod/a.txt", "pod/code/b.bin"]
    last = files(dave, pod, limit=2, cursor=first["next"]).json()
    assert (last["items"], last["next"]) == ([{"path": "workspace/empty", "size": 0}], None)
    assert files(dave, pod, limit=10_000).json()["next"] is None
    assert files(dave, pod, limit=10_001).status_code == 422
    listed = files(dave, pod, path="pod/code/", pod="worker-0", run=1).json()
    assert [item["path"] for item in listed["items"]] == ["pod/code/b.bin"]


def test_single_file_and_archive_are_downloaded(dave: Caller, pod: Pod) -> None:
    answer = files(dave, pod, "/download", path="pod/code/b.bin")
    assert b"".join(answer) == FILES["pod/code/b.bin"]
    assert answer["Content-Disposition"] == 'attachment; filename="b.bin"'
    answer = files(dave, pod, "/download", path="pod")
    content = b"".join(answer)
    assert int(answer["Content-Length"]) == len(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["pod/a.txt", "pod/code/b.bin"]


def test_each_download_is_audited_without_the_path(dave: Caller, pod: Pod) -> None:
    files(dave, pod)
    files(dave, pod, "/download", path="none")
    assert not Audit.objects.filter(action="read_files").exists()
    for path in ("pod/a.txt", "pod"):
        files(dave, pod, "/download", path=path)
    entries = Audit.objects.filter(action="read_files").values_list("actor", "object_name", "after")
    assert list(entries) == [("dave", "train", {"pod": "worker-0", "run": 1})] * 2


@pytest.mark.heavy
def test_download_is_aborted_if_its_file_is_truncated(dave: Caller, pod: Pod, runtime: FakeRuntime) -> None:
    answer = files(dave, pod, "/download", path="pod/code/b.bin")
    runtime.files[str(pod.pk)]["pod/code/b.bin"] = b"\0"
    with pytest.raises(Exception, match="was truncated"):
        b"".join(answer)


@pytest.mark.heavy
def test_error_states_whether_the_file_or_its_pod_or_node_is_missing(
    dave: Caller, pod: Pod, runtime: FakeRuntime
) -> None:
    assert "no readable file 'none'" in files(dave, pod, "/download", path="none").json()["detail"]
    assert files(dave, pod, path="none").status_code == 404
    answer = files(dave, pod, pod="worker-7", run=2)
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        (
            "No files of the pod 'worker-7' in run 2 are kept for train. Submit with `keep_failed_pod: 30m` "
            "to keep the files of failed pods."
        ),
    )
    runtime.next("list_files", RuntimeFailure("the node is not responding"))
    answer = files(dave, pod)
    assert (answer.status_code, "The files cannot be read right now" in answer.json()["detail"]) == (
        503,
        True,
    )
    runtime.forget(str(pod.pk))
    assert "no longer exist" in files(dave, pod).json()["detail"]


def test_only_users_who_may_operate_a_workload_can_access_its_retained_files(
    dave: Caller, erin: Caller, pod: Pod
) -> None:
    for call in (files(erin, pod), files(erin, pod, "/download")):
        assert call.status_code == 403
    assert erin("DELETE", f"workloads/{pod.workload_id}/files").status_code == 403
    (listed,) = dave.get(f"workloads/{pod.workload_id}/pods").json()["items"]
    assert listed["files_until"] is not None
    for _ in range(2):
        assert dave("DELETE", f"workloads/{pod.workload_id}/files").status_code == 204
    assert Audit.objects.filter(action="delete_files").count() == 1
    assert files(dave, pod).status_code == 404
    (listed,) = dave.get(f"workloads/{pod.workload_id}/pods").json()["items"]
    assert listed["files_until"] is None
