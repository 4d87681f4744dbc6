"""Tests for the files of failed pods on the workload page."""

import pytest

from berth.server.wiring import Wiring
from projects.models import Audit, Pod
from tests.api.workloads.test_retained_files import leave_failed_pod
from tests.cast import Cast
from tests.fakes.runtime import FakeRuntime
from tests.web.conftest import SignIn


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(
        "scheduler.api.files.retained_files.load_wiring", lambda: Wiring(fake.clock, {}, {"fake": fake})
    )
    return fake


def test_files_of_failed_pods_can_be_previewed_and_deleted_in_the_outputs_tab(
    cast: Cast,
    sign_in: SignIn,
    runtime: FakeRuntime,
) -> None:
    pod = leave_failed_pod(cast, runtime)
    runtime.files[str(pod.pk)]["pod/a.txt"] = b"<b>\x1b[31malpha\x1b[0m\n"
    client, path = sign_in("dave"), f"/workloads/{pod.workload_id}/outputs"
    text = client.get(path).content.decode()
    assert "Failed pods" in text
    assert "Files of failed pod" not in text
    assert ("list_files", str(pod.pk)) not in runtime.calls, "the page must not wait for a node"
    text = client.get(path, {"failed": str(pod.pk)}).content.decode()
    assert "Files of failed pod worker-0, run 1" in text
    assert text.count(">Download file</a>") == 3
    assert not Audit.objects.filter(action="read_files").exists()
    preview = client.get(path, {"failed": str(pod.pk), "path": "pod/a.txt"}).content.decode()
    assert "<pre>&lt;b&gt;alpha\n</pre>" in preview
    assert Audit.objects.get(action="read_files").actor == "dave"
    delete = f"/workloads/{pod.workload_id}/files/delete"
    assert "Delete files" in client.get(delete).content.decode()
    client.post(delete)
    assert "Failed pods" not in client.get(path).content.decode()
    assert not Pod.objects.filter(pk=pod.pk, files_until__gt=pod.files_until).exists()


@pytest.mark.every_case
@pytest.mark.parametrize("query", [{}, {"failed": "x"}])
def test_viewer_sees_no_failed_pods(
    cast: Cast,
    sign_in: SignIn,
    runtime: FakeRuntime,
    query: dict[str, str],
) -> None:
    pod = leave_failed_pod(cast, runtime)
    client = sign_in("erin")
    assert "Failed pods" not in client.get(f"/workloads/{pod.workload_id}/outputs", query).content.decode()
    assert client.post(f"/workloads/{pod.workload_id}/files/delete").status_code == 403
