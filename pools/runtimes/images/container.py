"""Create the container for a pod that has an image.

podman creates it around a waiting process, and the shim starts the pod's command in its namespaces.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os
import time
import warnings  # noqa: F401 (os.execvpe imports it, and it is not in the container)

from pools.runtimes.images.podman import Podman, PodmanTimeout
from pools.runtimes.images.store import ImageStore, container_name, removal_arguments, remove_traces
from pools.runtimes.images.traces import kill_processes
from pools.runtimes.shim.enclosure.namespaces import Namespaces
from pools.runtimes.shim.enclosure.shared_memory import SharedMemory
from pools.runtimes.shim.interrupts import Interrupted, Interrupts
from pools.runtimes.shim.processes import descendants
from pools.runtimes.shim.records import Record, write_record
from pools.runtimes.shim.wakes import wake_listeners

REPORT_SECONDS = 1.0
REMOVE_SECONDS = 60.0


class CannotRun(Exception):
    """Raised if the pod cannot run in its image. The message contains the reason."""


class CannotPull(CannotRun):
    pass


class ImageMissing(CannotRun):
    """Raised if an image is missing from the storage, although its pull was recorded."""


class Container(Namespaces):
    """Container of a pod. If the pod has no image, the container uses the machine's programs."""

    is_container = True

    def __init__(
        self, directory: str, order: Record, uid: int, groups: list[int], memory: SharedMemory | None,
        call_filter: bytes, interrupts: Interrupts,
    ) -> None:  # fmt: skip
        super().__init__([], uid, groups, f"{directory}/podman.err", memory, call_filter)
        self._pod, self._order, self._fields = directory, order, dict(order)
        variables = [value for key, value in order if key == "podman_env"]
        self._podman = Podman(ImageStore(self._fields["image_store"]), directory, variables, interrupts)
        self._name = container_name(directory)
        self._config: Record = []
        self._reported_at = 0.0
        self._is_removed = False

    def launch(self) -> str:
        """Pull the image and create the container. Return an error message or ""."""
        self._podman.adopt_orphans()  # conmon detaches from its parent, so this process must adopt it
        try:
            if self.memory:
                self.memory.open()
            if self._fields["image"]:
                self._create_from_image(self._fields["image_digest"])
            else:
                self._create("")
        except CannotPull as error:
            self.cause = "image_pull_failed"
            return str(error)
        except (CannotRun, PodmanTimeout) as error:
            return str(error)
        except OSError as error:
            return f"the pod's container could not be created: {error}"
        except Interrupted as interrupted:
            self.cause = interrupted.cause
            return "stopped before its container had started"
        self.pids = frozenset(descendants(os.getpid()))
        return ""

    def wait(self) -> str:
        return ""

    def complete(self, command: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return the pod's command and variables, with defaults from the image.

        The pod's command replaces the image's. The pod's variables override the image's, which override
        Berth's.
        """
        defaults = _environment_variables(self._order, "env_default")
        of_image = [value for wanted in ("entrypoint", "cmd") for key, value in self._config if key == wanted]
        return command or of_image, {**defaults, **_environment_variables(self._config, "env"), **env}

    def end(self) -> None:
        """Remove the container and kill all of its processes."""
        if not os.path.exists(f"{self._pod}/container"):
            return
        if not self.init:  # podman does not track processes of a container that is still being created
            kill_processes(self._name)
        try:
            removed = self._podman.run(
                *removal_arguments(self._name),
                seconds=REMOVE_SECONDS,
                interruptible=False,
                watch=self._reap_init,
            )
        except PodmanTimeout:
            return
        self._is_removed = removed.code == 0

    def _reap_init(self, _: int) -> None:
        """Reap the container's first process. It is a child of this process if conmon was killed."""
        try:
            os.waitpid(self.init, os.WNOHANG)
        except ChildProcessError:
            pass

    def close(self) -> None:
        if self._is_removed:  # if the removal fails, the runtime tries again when it deletes the pod's record
            remove_traces(self._pod, self._name)
        super().close()

    def _create_from_image(self, digest: str) -> None:
        """Create the container. If the image has disappeared, pull it again."""
        store = self._podman.store
        in_use = os.open(f"{store.locks}/{digest}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(in_use, fcntl.LOCK_SH)
            try:
                self._create_with_config(self._ensure_pulled(digest))
            except ImageMissing:
                store.delete_records(digest)
                self._create_with_config(self._ensure_pulled(digest))
            store.touch(digest)
        finally:
            os.close(in_use)
            os.unlink(f"{self._pod}/auth.json")

    def _ensure_pulled(self, digest: str) -> Record:
        store = self._podman.store
        if self._fields["image_policy"] != "always" and store.has_access(
            self._fields["image_project"], digest
        ):
            config = store.read_config(digest)
            if config is not None:
                return config
        from pools.runtimes.images.pull import ImagePull  # this import is slow and not needed by most pods

        return ImagePull(self._podman, self._pod, self._order, self._report_progress).ensure_pulled()

    def _create_with_config(self, config: Record) -> None:
        self._config = config
        if "image_directory" in self._fields:
            self.directory = dict(config)["working_dir"]
        if not any(key in ("entrypoint", "cmd") for key, _ in config) and "arg" not in self._fields:
            raise CannotRun(f"image {self._fields['image']} has no command. Set `command` in the document")
        self._create(next(value for key, value in config if key == "name"))

    def _create(self, image: str) -> None:
        """Create the container and its guard. Raises CannotRun or Interrupted."""
        self.end()  # remove a container that a killed shim left behind
        record = [("name", self._name), ("store", self._podman.store.root)]
        write_record(f"{self._pod}/container", record, durable=False)
        options = [value for key, value in self._order if key == "podman_arg"]
        pid_file = f"{self._pod}/container.pid"
        output = self._podman.run(
            "run", "--detach", "--replace", "--rm", f"--name={self._name}", f"--cgroup-parent=/{self._name}",
            f"--pidfile={pid_file}", *options, *([image, "-P"] if image else ["-P"]),
        )  # fmt: skip
        if output.code != 0:
            detail = output.errors.strip().splitlines()[-1:] or ["podman was killed"]
            kind = ImageMissing if "image not known" in detail[0] else CannotRun
            raise kind(f"the pod's container could not be created: {detail[0].removeprefix('Error: ')}")
        with open(pid_file) as file:
            self.init = int(file.read())
        self._start_guard(os.pidfd_open(self.init))

    def _start_guard(self, init: int) -> None:
        """Start a process that kills the container if this process exits."""
        alive_read, self._input = os.pipe()
        if os.fork() == 0:
            try:
                signal.set_wakeup_fd(-1)
                os.setsid()
                os.close(self._input)
                os.read(alive_read, 1)
                signal.pidfd_send_signal(init, signal.SIGKILL)
            finally:
                os._exit(0)
        os.close(alive_read)

    def _report_progress(self, progress: str) -> None:
        """Store the progress of the pod's start for the runtime to read, at most once a second."""
        now = time.monotonic()
        if now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = now
        write_record(f"{self._pod}/progress", [("text", progress), ("pulls_image", "1")], durable=False)
        wake_listeners(self._fields["wake_dir"])


def _environment_variables(record: Record, key: str) -> dict[str, str]:
    """Return the variables under `key` in the record. A missing value becomes ""."""
    return {each.partition("=")[0]: each.partition("=")[2] for name, each in record if name == key}
