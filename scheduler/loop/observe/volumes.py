"""Find volumes that nodes lack, and pools that no longer offer a workload's volumes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pools.engine.volumes import read_volumes, rejection_reason
from pools.models import NodePool
from pools.runtimes.enclosure.levels import IsolationLevel
from scheduler.engine.model import VOLUME
from scheduler.loop.observe.isolation import Features, Report

StoredVolumes = Sequence[Mapping[str, Any]]
NOT_ISOLATED = ", because pods are not isolated there"


def missing_volumes(stored: StoredVolumes, labels: Mapping[str, str], report: Report | None) -> Features:
    """Return the pool's volumes that a node with the given labels lacks, each with the reason as a clause."""
    if not stored:
        return {}
    cannot_mount = report is not None and report["level"] == IsolationLevel.NONE and not report.get("images")
    return {
        VOLUME + volume.name: NOT_ISOLATED if cannot_mount else ""
        for volume in read_volumes(stored)
        if cannot_mount or not volume.is_on_node(labels)
    }


class VolumeRejections:
    """Pools that no longer offer the volumes of pending workloads after a change of the pool settings."""

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._stored = {pool.name: pool.volumes for pool in pools}

    @property
    def settings(self) -> Mapping[str, StoredVolumes]:
        """Stored volumes of each pool, which determine the result of `volume_rejections`."""
        return self._stored

    def volume_rejections(self, project: str, names: Sequence[str]) -> Mapping[str, str]:
        """Return the rejection reason of each pool where the project cannot use all of the volumes."""
        reasons = {
            pool: rejection_reason(stored, pool, project, names) for pool, stored in self._stored.items()
        }
        return {pool: reason for pool, reason in reasons.items() if reason}
