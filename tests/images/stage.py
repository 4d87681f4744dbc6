"""A runtime whose pods run in images from a registry on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pools.runtimes.base import PodReport, Runtime
from pools.runtimes.images.node import NodeImages
from pools.runtimes.images.probe import ImageSupport
from pools.runtimes.images.store import ImageStore, container_name
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.processes import process_ids
from tests.contracts.pods import LocalStage, ended, order, poll_until, running
from tests.images.registry import Registry

PAUSES, SILENCE = (0.01, 0.01), 20.0
_GROUPS = Path("/sys/fs/cgroup")


class ImageStage(LocalStage):
    """Runs pods in images. All stages with the same `home` share the image storage.

    `first` is a runtime with the same home, whose probes are not repeated.
    """

    def __init__(self, root: Path, registry: Registry, first: LocalRuntime | None = None) -> None:
        super().__init__(root)
        self.registry = registry
        self._first = first
        self._prepare()

    @property
    def images(self) -> NodeImages:
        images: NodeImages = self.runtime._enclosures.images
        return images

    @property
    def support(self) -> ImageSupport:
        return self.images.support

    @property
    def store(self) -> ImageStore:
        return self.images.store

    def restart(self) -> Runtime:
        super().restart()
        self._prepare()
        return self.runtime

    def set_pull(self, **changes: object) -> None:
        """Change the pauses between pulls, the response timeout or the storage size."""
        if "cache_bytes" in changes:
            self.images._support = replace(self.support, cache_bytes=changes.pop("cache_bytes"))  # type: ignore[arg-type]
        self.images.pull_settings = replace(self.images.pull_settings, **changes)  # type: ignore[arg-type]

    def start(self, pod_id: str, image: str, *command: str, **changes: object) -> None:
        """Start a pod in an image with the credentials of the registry."""
        values: dict[str, object] = {"image": image, "registry_auth": self.registry.auth, **changes}
        self.runtime.start(replace(order(pod_id, **values), command=command))

    def run(self, pod_id: str, image: str, script: str, **changes: object) -> PodReport:
        """Run a shell script in an image until it ends."""
        self.start(pod_id, image, "sh", "-c", script, **changes)
        return ended(self.runtime, pod_id)

    def output(self, pod_id: str, image: str, script: str, **changes: object) -> str:
        self.run(pod_id, image, script, **changes)
        return self.log(pod_id)

    def log(self, pod_id: str) -> str:
        return str(self.runtime.read_log(pod_id, 0, 100_000).data.decode()).strip()

    def find_pid(self, program: str, pod_id: str, *, other_than: int = 0) -> int:
        """Return the ID of the conmon or podman process that serves this pod, once the process runs."""
        pod = self.root / "pods" / pod_id
        mark, name = f"BERTH_POD_DIR={pod / 'work'}", container_name(str(pod))

        def find() -> int:
            lines = _command_lines()
            matching = (pid for pid, line in lines if program in line.split(" ", 1)[0]
                        and (name in line or mark in _environment(pid)))  # fmt: skip
            return next((pid for pid in matching if pid != other_than), 0)

        return poll_until(find)

    def shim(self, pod_id: str) -> int:
        return int(poll_until(lambda: self.runtime._pod_dir(pod_id).shim_pid()))

    def init(self, pod_id: str) -> int:
        """Return the ID of the first process in the pod's container, once the pod runs."""
        running(self.runtime, pod_id)
        return int((self.root / "pods" / pod_id / "container.pid").read_text())

    def _prepare(self) -> None:
        enclosures = self.runtime._enclosures
        if self._first is not None:
            enclosures._probed = self._first._enclosures._probe()
            enclosures.images._support = self._first._enclosures.images.support
        self.images.pull_settings = replace(self.images.pull_settings, pauses=PAUSES, silence=SILENCE)


def _command_lines() -> Iterator[tuple[int, str]]:
    for pid in process_ids():
        try:
            yield (
                pid,
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"),
            )
        except OSError:
            continue


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


@contextmanager
def image_home(home: Path) -> Iterator[LocalRuntime]:
    """Yield the first runtime of this directory, and delete the image storage at the end."""
    runtime = LocalRuntime(home / "first", anchor="")
    try:
        yield runtime
    finally:
        shutil.rmtree(runtime._enclosures.images.store.run_root, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


def _entries(directory: Path) -> set[str]:
    try:
        return {path.name for path in directory.iterdir()}
    except OSError:
        return set()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # a container of another test has ended
        return ""


def assert_nothing_is_left(stage: ImageStage) -> None:
    """Wait until no container of this stage is left, because podman may still be unmounting one."""
    poll_until(lambda: _traces(stage), lambda left: left == [])


def _traces(stage: ImageStage) -> list[str]:
    names = {container_name(str(pod)) for pod in (stage.root / "pods").iterdir()}
    processes = [line for _, line in _command_lines() if any(name in line for name in names)]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    groups = [f"{base}/{name}" for base in (_GROUPS, *_GROUPS.iterdir()) for name in names & _entries(base)]
    graph = f"{stage.store.root}/graph"
    bundles = [path for path in Path("/run/runc").glob("*/state.json") if graph in _text(path)]
    return [*processes, *(line for line in mounts if graph in line), *groups, *map(str, bundles)]
