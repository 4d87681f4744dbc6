"""Tests for outputs over REST: lists, files, downloads and rejected requests."""

import io
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from pools.models import NodePool
from pools.runtimes.files.base import PodFile, PodFiles
from projects.models import Pod, PodOutputs
from projects.services.outputs import store_files
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.fakes.runtime import FakeRuntime

FILES = {"results/a.txt": b"loss 0.5\n", "results/empty": b"", "results/b/model.bin": b"\0" * 5_000_000}


@pytest.fixture(autouse=True)
def code_store(settings: Any, tmp_path: Path) -> None:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")


def leave_outputs(pod: Pod, files: dict[str, bytes]) -> PodOutputs:
    runtime, now = FakeRuntime(), timezone.now()
    runtime.stop(str(pod.pk), 0)
    runtime.files[str(pod.pk)] = files
    listing = PodFiles(
        tuple(PodFile(path, len(files[path]), False) for path in sorted(files)), {"x": "is odd"}
    )
    tree = store_files(pod.workload.project, runtime, str(pod.pk), listing, now, lambda: None)
    return PodOutputs.objects.create(
        pod=pod, paths=["results"], state="stored", tree=tree, skipped=listing.skipped, stored_at=now
    )


def download(caller: Caller, owner: Pod, **query: str) -> Any:
    return caller.get(f"workloads/{owner.workload_id}/outputs/download?{urlencode(query)}")


@pytest.fixture
def pods(cast: Cast) -> list[Pod]:
    """Return two ended pods of a workload. Only the first has left output files."""
    workload = make.workload(cast.vision, "train", phase="completed", run=1)
    node = make.node(cast.pool, gpus=2)
    pods = [make.place(workload, node, [device], index=device) for device in (0, 1)]
    leave_outputs(pods[0], FILES)
    PodOutputs.objects.create(pod=pods[1], paths=["results"], state="failed", message="The node is gone.")
    return pods


def test_outputs_are_listed_by_pod_with_the_reasons_for_missing_outputs(
    dave: Caller, pods: list[Pod]
) -> None:
    path = f"workloads/{pods[0].workload_id}/outputs"
    listed = {item["pod"]: item for item in dave.get(path).json()["items"]}
    stored, failed = listed["worker-0"], listed["worker-1"]
    assert (stored["state"], stored["files"], stored["size"]) == ("stored", 3, 5_000_009)
    assert stored["skipped"] == {"x": "is odd"}
    assert (failed["state"], failed["message"], failed["files"]) == ("failed", "The node is gone.", 0)
    first = dave.get(path, limit=1).json()
    assert len(dave.get(path, limit=1, cursor=first["next"]).json()["items"]) == 1


def test_file_list_is_paginated(dave: Caller, pods: list[Pod]) -> None:
    path = f"workloads/{pods[0].workload_id}/outputs/files"
    first = dave.get(path, limit=2).json()
    assert [item["path"] for item in first["items"]] == ["results/a.txt", "results/b/model.bin"]
    last = dave.get(path, limit=2, cursor=first["next"]).json()
    assert (last["items"], last["next"]) == ([{"path": "results/empty", "size": 0}], None)


def test_single_file_is_downloaded_as_an_attachment(dave: Caller, pods: list[Pod]) -> None:
    answer = download(dave, pods[0], path="results/a.txt")
    assert b"".join(answer) == b"loss 0.5\n"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == 'attachment; filename="a.txt"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert b"".join(download(dave, pods[0], path="results/empty")) == b""
    assert (
        len(b"".join(download(dave, pods[0], path="results/b/model.bin", pod="worker-0", run="1")))
        == 5_000_000
    )


def test_directory_is_downloaded_as_an_archive(dave: Caller, pods: list[Pod]) -> None:
    queries: tuple[tuple[dict[str, str], list[str]], ...] = (
        ({}, ["results/a.txt", "results/b/model.bin", "results/empty"]),
        ({"path": "results/b/"}, ["results/b/model.bin"]),
        ({"path": "results/a.txt", "archive": "true"}, ["results/a.txt"]),
    )
    for query, names in queries:
        answer = download(dave, pods[0], **query)
        content = b"".join(answer)
        assert int(answer["Content-Length"]) == len(content)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            assert archive.getnames() == names


@pytest.mark.heavy
def test_error_names_the_missing_file_or_pod(cast: Cast, dave: Caller, pods: list[Pod]) -> None:
    assert download(dave, pods[0], path="results/none").status_code == 404
    assert download(dave, pods[0], path="../etc").status_code == 404
    assert (
        download(dave, pods[0], pod="worker-7").json()["detail"]
        == "Workload train has no outputs of the pod 'worker-7'. List stored outputs with "
        "`berth outputs list vision/train`."
    )
    failed = download(dave, pods[0], pod="worker-1")
    assert (failed.status_code, failed.json()["detail"]) == (409, "The node is gone.")
    assert download(dave, pods[0], run="2").status_code == 404
    assert download(dave, pods[0], pod="\u00b2-\u00b2").status_code == 404


@pytest.mark.heavy
def test_kubernetes_pools_accept_outputs(cast: Cast, dave: Caller) -> None:
    NodePool.objects.filter(pk=cast.pool.pk).update(runtime="kubernetes", provider="kubernetes")
    document = training("train", project="vision", image="docker.io/library/busybox:1", outputs=["results"])
    created = dave.post("workloads", document)
    assert created.status_code == 201, created.json()
    assert created.json()["spec"]["outputs"] == ["results"]


@pytest.mark.heavy
def test_service_with_outputs_is_rejected(dave: Caller) -> None:
    document = training("train", project="vision", kind="service", outputs=["results"])
    errors = dave.post("workloads", document).json()["errors"]
    assert "cannot be used by services, which do not end" in [error["message"] for error in errors]
