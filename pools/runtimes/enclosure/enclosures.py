"""Choose the enclosure for each pod on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pools.runtimes.base import PodSpec
from pools.runtimes.enclosure.devices import pod_devices
from pools.runtimes.enclosure.levels import (
    PROBE_PROJECT,
    PROBE_WORKSPACE,
    Isolation,
    IsolationLevel,
    find_rejection,
    read_policy,
)
from pools.runtimes.enclosure.machine import declared_paths_view, environment_mounts, machine_view
from pools.runtimes.enclosure.pod import PodFiles, enclosure_fields, is_visible
from pools.runtimes.enclosure.preparation import Preparation
from pools.runtimes.enclosure.probe import ProbeResult, Shim, probe
from pools.runtimes.enclosure.volumes import require_no_volumes, volume_mounts
from pools.runtimes.images.node import NodeImages
from pools.runtimes.shim.code import DIRECTORY as CODE_DIRECTORY
from pools.runtimes.shim.records import Record

# File with the name of the project that a machine without isolation serves.
# No workspace can have the same name as this file.
_SERVED = ".project"


class DirectoryNotVisible(Exception):
    """Raised if a pod's working directory is not visible inside its enclosure."""


@dataclass(frozen=True)
class WorkingDirectory:
    """Directory `path` where a pod starts.

    `created` is the directory that the shim must create first, if any. `shared` is a directory of the machine
    that the pod can access.
    """

    path: Path
    created: Path | None = None
    shared: Path | None = None


class Enclosures:
    """Enclosures of a runtime's pods, whose directories are in `pods`.

    `state` contains Berth's own files, which pods must not see. `shared` is the root of the `workspace`
    paths.
    """

    def __init__(self, pods: Path, state: Path, shared: Path, shim: Shim) -> None:
        self._pods, self._state, self._shared, self._shim = pods, state, shared, shim
        self._probed: ProbeResult | None = None
        self._preparation = Preparation(pods.parent)
        self.images = NodeImages(state / "images", pods, shim)

    @property
    def isolation(self) -> Isolation:
        """Isolation of pods without images on this machine. The first access runs the isolation tests."""
        return self._probe().isolation

    def rejection_reason(self, spec: PodSpec, workspaces: Path) -> str:
        """Return why this machine must not run the pod, or "".

        Without isolation, a machine serves only the project of its first pod.
        """
        isolation = self.isolation
        if isolation.encloses or spec.project == PROBE_PROJECT:
            return find_rejection(isolation, spec.project, spec.uid, ())
        served = workspaces / _SERVED
        is_empty = all(each.name.startswith((".", PROBE_WORKSPACE)) for each in workspaces.iterdir())
        others = () if is_empty or not served.exists() else (served.read_text(),)
        rejection = find_rejection(isolation, spec.project, spec.uid, others)
        if not rejection and not others:
            served.write_text(spec.project)
        return rejection

    def working_directory(self, spec: PodSpec, workspace: Path) -> WorkingDirectory:
        """Return the pod's working directory.

        If `start_in` is set, this is that directory on this machine or, if the machine has no such directory,
        in the workspace. Otherwise, a relative path is resolved against the pod's own directory.
        """
        if not spec.start_in:
            code = CODE_DIRECTORY if spec.code_url else ""
            return WorkingDirectory(Path(code, spec.working_dir or ""))
        name = spec.start_in.strip("/")
        shared = self._shared / name
        if not self.isolation.encloses and not spec.image:
            is_shared = shared.is_dir()
        else:  # the pod can write here, so symbolic links must not lead outside the shared root
            root, shared = Path(os.path.realpath(self._shared)), Path(os.path.realpath(shared))
            is_shared = root != Path("/") and root in shared.parents and shared.is_dir()
        if is_shared:
            return WorkingDirectory(shared, shared=shared)
        return WorkingDirectory(workspace / name, created=workspace / name)

    def prepare(
        self, spec: PodSpec, env: dict[str, str], directory: Path, start: WorkingDirectory,
        environment: Path | None,
    ) -> Record:  # fmt: skip
        """Prepare the pod's enclosure, and return the pod spec fields that describe it.

        Set CUDA_VISIBLE_DEVICES in `env` to IDs that are valid inside the enclosure. Raises
        DirectoryNotVisible, UnknownDevice and UnusableVolume.
        """
        if spec.image:
            return self._container_fields(spec, env, directory, start)
        probed = self._probe()
        if not probed.isolation.encloses:
            require_no_volumes(spec)
            return []
        devices = pod_devices(spec.devices)
        work, workspace = Path(env["BERTH_POD_DIR"]), Path(env["BERTH_WORKSPACE"])
        mounts = environment_mounts(environment) if environment else ()
        volumes = volume_mounts(spec, self._state, directory)
        files = PodFiles(
            directory, work, workspace, start.shared, (*mounts, *volumes.readable), volumes.writable
        )
        view = machine_view([self._state, workspace.parent])
        if not is_visible(str(work / start.path), view, files):
            raise DirectoryNotVisible(f"{start.path}: No such file or directory in the pod")
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices.ids)
        level = probed.isolation.level
        return enclosure_fields(
            files, view, level, spec.uid if level is IsolationLevel.USERS else 0, env, devices.nodes,
            program=probed.program, blocks_nesting=probed.blocks_nesting, call_filter=probed.call_filter,
            preparation=self._preparation,
        )  # fmt: skip

    def _container_fields(
        self, spec: PodSpec, env: dict[str, str], directory: Path, start: WorkingDirectory
    ) -> Record:
        workspace = Path(env["BERTH_WORKSPACE"])
        volumes = volume_mounts(spec, self._state, directory)
        files = PodFiles(
            directory, Path(env["BERTH_POD_DIR"]), workspace, start.shared, volumes.readable, volumes.writable
        )
        return self.images.prepare(spec, env, files, declared_paths_view([self._state, workspace.parent]))

    def _probe(self) -> ProbeResult:
        if self._probed is None:
            self._probed = probe(self._pods, read_policy(), self._shim)
        return self._probed
