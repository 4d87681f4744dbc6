"""Support for container images on this node, and the pod spec fields for containers."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from pools.runtimes.base import PodSpec
from pools.runtimes.enclosure.command import FileSystemView
from pools.runtimes.enclosure.devices import pod_devices
from pools.runtimes.enclosure.levels import FIRST_UID, LAST_UID, Isolation
from pools.runtimes.enclosure.pod import PodFiles, add_own_files, user_fields
from pools.runtimes.enclosure.probe import ProbeInterrupted, Shim
from pools.runtimes.enclosure.seccomp import find_filter_program
from pools.runtimes.images.cdi import cdi_devices
from pools.runtimes.images.container_spec import (
    ContainerFiles,
    PullSettings,
    container_fields,
    default_fields,
    pull_fields,
)
from pools.runtimes.images.probe import ImageSupport, probe_images
from pools.runtimes.images.reference import InvalidReference, parse_reference
from pools.runtimes.images.store import ImageStore
from pools.runtimes.shim.records import Record

POLICIES = ("if_not_present", "always", "never")


class NodeImages:
    """Container images on a node, stored below `root`. `pods` contains the pods' directories."""

    def __init__(self, root: Path, pods: Path, shim: Shim) -> None:
        self.store = ImageStore(str(root))
        self.pull_settings = PullSettings(0)
        self._pods, self._shim = pods, shim
        self._lock = threading.Lock()
        self._support: ImageSupport | None = None

    @property
    def support(self) -> ImageSupport:
        """Support for images on this machine. The first access runs a test that takes about a second."""
        with self._lock:
            if self._support is None:
                try:
                    self._support = probe_images(self.store, self._pods, self._shim)
                except ProbeInterrupted as error:
                    return ImageSupport(obstacle=f"{error}.")
            return self._support

    def begin_probe(self) -> None:
        """Test the support for images in the background, so that reading `support` later does not wait."""
        threading.Thread(target=lambda: self.support, name="images", daemon=True).start()

    def with_image_support(self, isolation: Isolation) -> Isolation:
        return replace(isolation, images=self.support.version, images_obstacle=self.support.obstacle)

    def rejection_reason(self, spec: PodSpec) -> str:
        """Return why this node must not run the pod, or an empty string if it may."""
        if not spec.image:
            return ""
        try:
            parse_reference(spec.image)
        except InvalidReference as error:
            return str(error)
        if spec.image_pull_policy not in POLICIES:
            return f"image_pull_policy is {spec.image_pull_policy!r}. Use one of {', '.join(POLICIES)}"
        if not self.support.version:
            return f"this node cannot run images: {self.support.obstacle}"
        if spec.environment:
            return (
                "the pool's environment does not work in an image, because its Python belongs to the node. "
                "Remove the image, or use a pool without plugins that install packages"
            )
        if not FIRST_UID < spec.uid <= LAST_UID:
            return f"the pod spec names user ID {spec.uid}, which is outside the range for pods"
        return ""

    def prepare(self, spec: PodSpec, env: dict[str, str], files: PodFiles, view: FileSystemView) -> Record:
        """Prepare the pod's files, and return the pod spec fields that describe its container.

        `view` lists the directories that the operator declared. Changes CUDA_VISIBLE_DEVICES in `env`. Raises
        UnknownDevice.
        """
        devices = pod_devices(spec.devices)
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices.ids)
        named = cdi_devices(devices.ids) or cdi_devices(spec.devices)
        view = add_own_files(view, files, spec.uid, env, named or devices.nodes)
        settings = replace(self.pull_settings, cache_bytes=self.support.cache_bytes)
        chooses = bool(spec.working_dir or spec.start_in or spec.code_url)
        return [
            *user_fields(view, spec.uid, find_filter_program()[0]),
            *container_fields(ContainerFiles(self.support.init, view, spec.uid), self.store.root),
            *pull_fields(spec, settings), *default_fields(files.workspace, files.work),
            *([] if chooses else [("image_directory", "yes")]),
        ]  # fmt: skip
