"""Tests for image pulls: credentials, errors, permitted projects and the storage size."""

import http.server
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause, PodState
from pools.runtimes.images.cache import stored_bytes
from pools.runtimes.images.errors import classify_failure
from pools.runtimes.images.progress import Progress
from pools.runtimes.images.reference import InvalidReference, Reference, parse_reference
from tests.contracts.pods import UID, ended, poll_until
from tests.images.registry import Registry, busybox_layer, layer
from tests.images.stage import ImageStage, assert_nothing_is_left

OTHER_PROJECT = UID + 1
DIGEST = "0123456789abcdef" * 4


def push_image(registry: Registry, name: str, *, size: int = 0) -> str:
    """Push a unique image with a layer of this many random bytes."""
    layers = [busybox_layer(), layer({"data": os.urandom(size) if size else name.encode()})]
    return registry.push(f"own/{name}", layers, Env=["PATH=/bin"])


def failure(
    stage: ImageStage,
    pod_id: str,
    image: str,
    *,
    cause: PodCause = PodCause.IMAGE_PULL_FAILED,
    **changes: object,
) -> str:
    """Return the reason why a pod failed to start."""
    report = stage.run(pod_id, image, "true", **changes)
    assert (report.state, report.cause) == (PodState.EXITED, cause)
    return report.message


# --- credentials and projects


@pytest.mark.heavy
def test_credentials_for_a_private_image_are_deleted_after_the_pull(
    stage: ImageStage, registry: Registry
) -> None:
    image = push_image(registry, "private")
    for pod_id, auth in (("p-1", ""), ("p-2", registry.auth_for("wrong"))):
        message = failure(stage, pod_id, image, registry_auth=auth)
        assert f"unauthorized: the registry {registry.address} rejects access" in message
    assert stage.run("p-3", image, "exit 3").exit_code == 3
    files = [path for path in stage.root.rglob("*") if path.is_file() and path.name != "lock"]
    secret = registry.auth.split('"auth": "')[1][:20].encode()
    assert [path for path in files if secret in path.read_bytes()] == []
    assert_nothing_is_left(stage)


@pytest.mark.heavy
def test_project_without_access_cannot_use_a_stored_image(stage: ImageStage, registry: Registry) -> None:
    image = push_image(registry, "shared")
    assert stage.run("p-1", image, "true").exit_code == 0
    assert "unauthorized" in failure(stage, "p-2", image, registry_auth="", uid=OTHER_PROJECT)
    assert "not pulled image" in failure(stage, "p-3", image, image_pull_policy="never", uid=OTHER_PROJECT)
    for policy in ("if_not_present", "never"):
        report = stage.run(f"p-{policy}", image, "true", registry_auth="", image_pull_policy=policy)
        assert report.exit_code == 0, "the project has pulled it"
    assert "unauthorized" in failure(stage, "p-4", image, registry_auth="", image_pull_policy="always")
    assert stage.run("p-5", image, "true", uid=OTHER_PROJECT, workspace="other").exit_code == 0


# --- errors


@pytest.mark.heavy
def test_pull_errors_name_the_cause(stage: ImageStage, registry: Registry) -> None:
    image = push_image(registry, "named")
    arm = registry.push("own/arm", architecture="arm64")
    index = registry.push_index("own/arm", {"arm64": arm})
    assert "not found: the registry" in failure(stage, "p-1", image.replace("named", "missing"))
    assert "not found: the registry" in failure(stage, "p-2", f"{image.rpartition(':')[0]}:{DIGEST}")
    for pod_id, reference in (("p-3", arm), ("p-4", index)):
        assert "wrong architecture: the image does not run on amd64" in failure(stage, pod_id, reference)
    rejected = PodCause.START_FAILED
    message = failure(stage, "p-5", image, cause=rejected, image_pull_policy="no")
    assert "Use one of if_not_present, always, never" in message
    assert failure(stage, "p-6", "team/a b", cause=rejected).startswith("invalid reference 'team/a b'")
    assert_nothing_is_left(stage)


def test_pull_from_an_unresponsive_registry_fails(stage: ImageStage) -> None:
    stage.set_pull(silence=0.3, pauses=())
    # This server accepts connections, but never answers.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        message = failure(stage, "p-1", f"{address}/team/x@sha256:{DIGEST}")
    assert message.endswith(f"no response: the registry {address} sent nothing for 0.3 s")


class BusyRegistry(http.server.BaseHTTPRequestHandler):
    """A registry that answers every request with a transient error."""

    def do_GET(self) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def busy_registry() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BusyRegistry) as server:
        server.requests = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_transient_registry_errors_are_retried(
    stage: ImageStage, busy_registry: http.server.ThreadingHTTPServer
) -> None:
    address = f"127.0.0.1:{busy_registry.server_port}"
    stage.set_pull(pauses=())
    message = failure(stage, "p-1", f"{address}/team/x@sha256:{DIGEST}")
    assert f"the registry {address} currently rejects requests" in message
    once = len(busy_registry.requests)  # type: ignore[attr-defined]
    stage.set_pull(pauses=(0.01, 0.01))
    failure(stage, "p-2", f"{address}/team/x@sha256:{DIGEST}")
    assert len(busy_registry.requests) == once + 3 * once  # type: ignore[attr-defined]


@pytest.mark.heavy
def test_pull_error_names_a_full_disk(stage: ImageStage, registry: Registry) -> None:
    graph = Path(stage.store.root) / "graph"
    image = push_image(registry, "large", size=12 << 20)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(graph)], check=False, capture_output=True
    )
    if mount.returncode != 0:
        pytest.skip(mount.stderr.decode())
    try:
        message = failure(stage, "p-1", image)
    finally:
        subprocess.run(["umount", "-l", str(graph)], check=True)
    assert "no space: the node's disk is full" in message


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("reading manifest: denied: requested access to the resource is denied", "unauthorized"),
        ("pinging container registry: Get: dial tcp: lookup r.example: no such host", "unreachable"),
        ("pinging container registry: x509: certificate signed by unknown authority", "untrusted"),
        ("reading manifest sha256:a in r.example/denied/no-space: toomanyrequests: slow down", "busy"),
        ("writing blob: storing blob: write: no space left on device", "no_space"),
        ("something else", "other"),
    ],
)
def test_podman_error_messages_are_classified(error: str, name: str) -> None:
    reference = Reference("r.example", "denied/no-space", DIGEST)
    assert classify_failure(f"Trying to pull ...\nError: {error}\n", reference, "amd64").name == name


@pytest.mark.parametrize(
    "text",
    [
        "busybox", f"busybox@sha256:{DIGEST}", "r.example/busybox:1", f"r.example/busy box@sha256:{DIGEST}",
        f"r.example/Busybox@sha256:{DIGEST}", f"r.example/b@sha256:{DIGEST[1:]}", f"--x/b@sha256:{DIGEST}",
        f"r.example/../b@sha256:{DIGEST}", f"r.example/{'b' * 400}@sha256:{DIGEST}",
    ],
)  # fmt: skip
def test_invalid_image_reference_is_rejected(text: str) -> None:
    with pytest.raises(InvalidReference):
        parse_reference(text)


@pytest.mark.parametrize("host", ["r.example", "localhost", "r.example:5000", "127.0.0.1:5000", "[::1]:5000"])
def test_image_reference_with_a_digest_has_three_parts(host: str) -> None:
    reference = parse_reference(f"{host}/team/train@sha256:{DIGEST}")
    assert reference == Reference(host, "team/train", DIGEST)
    assert reference.is_loopback == ("example" not in host)


# --- waiting


def test_stopping_a_pod_ends_its_pull_from_a_hanging_registry(stage: ImageStage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        stage.start("p-1", f"{address}/team/x@sha256:{DIGEST}", "true")
        report = poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"], lambda each: each.progress)
        assert (report.state, report.progress) == (PodState.STARTING, "asking the registry for the image")
        assert report.pulls_image
        stage.runtime.stop("p-1", 30)
        report = ended(stage.runtime, "p-1")
    assert (report.cause, report.message) == (PodCause.STOPPED, "stopped before its container had started")
    assert_nothing_is_left(stage)


def test_second_pod_waits_for_the_first_pods_pull(stage: ImageStage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        image = f"127.0.0.1:{listener.getsockname()[1]}/team/x@sha256:{DIGEST[::-1]}"
        stage.set_pull(silence=3600.0, pauses=())
        stage.start("p-1", image, "true")
        poll_until(lambda: stage.runtime.get_reports(["p-1"])["p-1"], lambda each: each.progress)
        stage.set_pull(silence=0.3)
        stage.start("p-2", image, "true")
        poll_until(
            lambda: stage.runtime.get_reports(["p-2"])["p-2"].progress,
            lambda progress: progress == "waiting for another pod to pull the image",
        )
        stage.runtime.stop("p-1", 0)
        assert "no response" in ended(stage.runtime, "p-2").message


def test_pull_progress_includes_the_layer_and_the_size_in_megabytes(tmp_path: Path) -> None:
    progress = Progress(str(tmp_path), [5_000_000, 1_000_000, 20_000_000])
    assert progress.describe() == "pulling layer 1 of 3, 0 MB"
    (tmp_path / "storage1").mkdir()
    for name, size in (("1", 5_000_000), ("2", 1_000_000), ("3", 7_000_000)):
        with (tmp_path / "storage1" / name).open("wb") as file:
            file.truncate(size)
    assert progress.describe() == "pulling layer 3 of 3, 13 MB"
    os.truncate(tmp_path / "storage1" / "3", 20_000_000)
    assert progress.describe() == "unpacking 3 layers, 26 MB"
    assert Progress(str(tmp_path), []).describe() == "pulling the image, 26 MB"


# --- the size of the storage


@pytest.mark.heavy
def test_least_recently_used_image_is_removed_first(stage: ImageStage, registry: Registry) -> None:
    images = [push_image(registry, f"cache-{number}", size=1 << 20) for number in range(4)]
    digests = [image.rpartition(":")[2] for image in images]
    for number in (0, 1, 2):
        assert stage.run(f"p-{number}", images[number], "true").exit_code == 0
    stage.start("p-busy", images[0], "sh", "-c", stage.SHELL)
    poll_until(lambda: stage.runtime.get_reports(["p-busy"])["p-busy"].state is PodState.RUNNING)
    assert stage.run("p-3", images[1], "true").exit_code == 0, "the third is now the oldest unused image"
    for digest in {path.name for path in Path(stage.store.digests).iterdir()} - set(digests):
        stage.store.touch(digest)  # images of earlier tests are not older
    poll_until(lambda: not any(has_container(stage, pod_id) for pod_id in ("p-1", "p-2", "p-3")))
    stage.set_pull(cache_bytes=stored_bytes(stage.store))
    assert stage.run("p-4", images[3], "true").exit_code == 0
    present = [number for number in range(4) if stage.store.read_config(digests[number]) is not None]
    assert 0 in present, "a pod uses it"
    assert 3 in present, "a pod has just pulled it"
    assert 2 not in present
    assert not stage.store.has_access(str(UID), digests[2])
    assert stored_bytes(stage.store) <= stage.support.cache_bytes
    stage.end_pod("p-busy", 0)
    assert ended(stage.runtime, "p-busy").exit_code == 0


def has_container(stage: ImageStage, pod_id: str) -> bool:
    """Return whether the pod's container exists. A container remains for a while after its pod has ended."""
    return (stage.root / "pods" / pod_id / "container").exists()


@pytest.mark.heavy
def test_image_missing_from_storage_is_pulled_again(stage: ImageStage, registry: Registry) -> None:
    image = push_image(registry, "lost")
    assert stage.run("p-1", image, "true").exit_code == 0
    subprocess.run(["podman", "rmi", image], env=stage.store.environment(), check=True, capture_output=True)
    assert stage.run("p-2", image, "exit 5").exit_code == 5
