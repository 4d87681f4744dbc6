"""Pull a pod's image, unless its project has already pulled it to this node."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from pools.runtimes.images.cache import evict, evict_all
from pools.runtimes.images.container import CannotPull
from pools.runtimes.images.errors import PullError, classify_failure, pull_error
from pools.runtimes.images.podman import Podman, PodmanOutput, PodmanTimeout
from pools.runtimes.images.progress import Progress
from pools.runtimes.images.reference import parse_reference
from pools.runtimes.shim.records import Record

LOCK_SECONDS = 0.2
MANIFEST_SECONDS = 20.0
_SIGNALED = 128
# Maps machine architectures to the names that images use.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


class ImagePull:
    """Pull of one pod's image.

    `report` is called with a description of the progress. `directory` is the pod's directory, which contains
    the credentials. The pod spec contains the pauses between attempts and the time after which a silent
    registry counts as failed, both in seconds.
    """

    def __init__(self, podman: Podman, directory: str, order: Record, report: Callable[[str], None]) -> None:
        fields = dict(order)
        self._podman, self._report, self._store = podman, report, podman.store
        self._auth, self._registries = f"{directory}/auth.json", f"{directory}/registries.conf"
        self._reference = parse_reference(fields["image"])
        self._policy, self._project = fields["image_policy"], fields["image_project"]
        self._silence, self._cache_bytes = float(fields["image_silence"]), int(fields["image_cache"])
        self._pauses = [float(value) for key, value in order if key == "image_pause"]
        self._machine = _ARCHITECTURES.get(os.uname().machine, os.uname().machine)

    def ensure_pulled(self) -> Record:
        """Return the image's configuration, after pulling the image if necessary.

        Raises CannotPull and Interrupted.
        """
        if self._policy == "never":
            raise CannotPull(
                f"the project has not pulled image {self._reference} to this node, and the workload's "
                "image_pull_policy is never. Use if_not_present"
            )
        fd = self._lock()
        try:
            return self._find_pulled_config() or self._pull_until_done()
        finally:
            os.close(fd)

    def _find_pulled_config(self) -> Record | None:
        """Return the image's configuration, or None if it must first be pulled for the project."""
        digest = self._reference.digest
        if self._policy == "always" or not self._store.has_access(self._project, digest):
            return None
        return self._store.read_config(digest)

    def _lock(self) -> int:
        """Acquire the image's lock, and return its descriptor. Wait while another pod pulls the image."""
        path = f"{self._store.locks}/{self._reference.digest}.pull"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._report("waiting for another pod to pull the image")
                self._podman.pause(LOCK_SECONDS)
            else:
                return fd

    def _pull_until_done(self) -> Record:
        """Pull the image. Retry after temporary errors, and evict unused images if the disk is full."""
        pauses, has_evicted = list(self._pauses), False
        while True:
            error = self._pull_once()
            if error is None:
                return self._record_pulled_image()
            if error.name == "no_space" and not has_evicted:
                has_evicted = True
                evict_all(self._podman)
            elif error.is_transient and pauses:
                self._report(f"{error.text}; retrying")
                self._podman.pause(pauses.pop(0))
            else:
                raise CannotPull(f"image {self._reference}: {error.text}")

    def _pull_once(self) -> PullError | None:
        self._report("asking the registry for the image")
        progress = Progress(self._podman.temporary, self._layer_sizes())
        silence = StallTimer(self._silence)

        def watch_progress(pid: int) -> None:
            if progress.has_advanced(pid):
                silence.restart()
            silence.check()
            self._report(progress.describe())

        try:
            output = self._run("pull", "--quiet", str(self._reference), watch=watch_progress)
        except PodmanTimeout:
            return pull_error("no_answer", self._reference, self._machine, f"{self._silence:g} s")
        finally:
            shutil.rmtree(self._podman.temporary, ignore_errors=True)
        if output.code >= _SIGNALED:
            return pull_error("killed", self._reference, self._machine)
        return None if output.code == 0 else classify_failure(output.errors, self._reference, self._machine)

    def _layer_sizes(self) -> list[int]:
        """Return the compressed sizes of the layers in bytes, or [] if they are unknown."""
        seconds = min(MANIFEST_SECONDS, self._silence)
        reference = str(self._reference)
        for _ in range(2):  # if the first manifest is an image index, the second is the image's manifest
            try:
                output = self._run("manifest", "inspect", reference, seconds=seconds)
                manifest = json.loads(output.text)
                if "layers" in manifest:
                    return [int(layer["size"]) for layer in manifest["layers"]]
                digest = self._digest_for_machine(manifest["manifests"])
            except (PodmanTimeout, ValueError, KeyError, TypeError, StopIteration):
                return []
            reference = f"{self._reference.host}/{self._reference.name}@{digest}"
        return []

    def _digest_for_machine(self, manifests: list[dict[str, Any]]) -> str:
        matching = (each for each in manifests if each["platform"]["architecture"] == self._machine)
        return str(next(matching)["digest"])

    def _run(
        self, *arguments: str, watch: Callable[[int], None] | None = None, seconds: float = 1e9
    ) -> PodmanOutput:
        """Run podman with the pod's registry credentials, never with those of the machine's users."""
        variables = {"REGISTRY_AUTH_FILE": self._auth}
        if self._reference.is_loopback:
            settings = f'[[registry]]\nlocation = "{self._reference.host}"\ninsecure = true\n'
            with open(self._registries, "w") as file:
                file.write(settings)
            variables["CONTAINERS_REGISTRIES_CONF"] = self._registries
        return self._podman.run(*arguments, watch=watch, seconds=seconds, variables=variables)

    def _record_pulled_image(self) -> Record:
        """Record that the project has pulled the image, and trim the cache. Raises CannotPull."""
        output = self._podman.run("image", "inspect", str(self._reference))
        try:
            image = json.loads(output.text)[0]
            architecture, config = image["Architecture"], image["Config"]
            record = _config_record(str(self._reference), config)
        except (ValueError, KeyError, IndexError, TypeError):
            raise CannotPull(
                f"image {self._reference} has an invalid configuration. Build it again"
            ) from None
        if architecture not in ("", self._machine):
            error = pull_error("wrong_architecture", self._reference, self._machine)
            raise CannotPull(f"image {self._reference}: {error.text}")
        digest = self._reference.digest
        names = [value for key, value in self._store.read_config(digest) or () if key == "name"]
        record += [("name", name) for name in names if name != str(self._reference)]
        self._store.write_config(digest, record)
        self._store.grant_access(self._project, digest)
        evict(self._podman, self._cache_bytes)
        return record


class StallTimer:
    """Timer that expires if a pull makes no progress for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raise PodmanTimeout if the timer has expired."""
        if time.monotonic() > self._deadline:
            raise PodmanTimeout("the pull has stalled")


def _config_record(name: str, config: dict[str, Any]) -> Record:
    record: Record = [("name", name)]
    for key, field in (("env", "Env"), ("entrypoint", "Entrypoint"), ("cmd", "Cmd")):
        record += [(key, str(value)) for value in config.get(field) or ()]
    record += [("working_dir", str(config.get("WorkingDir") or ""))]
    if any("\0" in value for _, value in record):
        raise ValueError("a value contains a NUL byte")
    return record
