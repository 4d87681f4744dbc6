"""Thread that stores the outputs of pods that have ended."""

from typing import ClassVar

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import HeldLease
from pools.runtimes.base import RuntimeFailure
from pools.runtimes.files.base import FilesNotFound
from projects.code.base import StoreFailure
from projects.models import OutputState, PodOutputs
from projects.services.outputs import OutputsRejected, store_files
from scheduler.leftovers.collector import WAITING, LeftoversCollector

PODS_PER_ROUND = 20


class OutputsCollector(LeftoversCollector):
    """Thread that copies declared outputs from nodes to the store."""

    lease_name: ClassVar[str] = "outputs"
    subject: ClassVar[str] = "the collection of outputs"
    waiting: ClassVar[str] = WAITING.format(condition="volume = ''")

    def run_job(self, held: HeldLease) -> None:
        rows = self._due_outputs(self._clock.now()).filter(volume="")
        for outputs in rows.order_by("retry_at", "pod__ended_at")[:PODS_PER_ROUND]:
            self._store_outputs(outputs, held)

    def _store_outputs(self, outputs: PodOutputs, held: HeldLease) -> None:
        assert_no_transaction()
        pod, now = outputs.pod, self._clock.now()
        try:
            runtime = self._runtime_of(pod.node.pool)
            listing = runtime.list_files(str(pod.pk), outputs.paths)
            project = pod.workload.project
            tree = store_files(project, runtime, str(pod.pk), listing, now, lambda: self._renew_lease(held))
        except (OutputsRejected, FilesNotFound) as error:
            self._give_up(outputs, held, error)
        except (RuntimeFailure, StoreFailure, LookupError, OSError) as error:
            self._postpone(outputs, held, now, error)
        else:
            crash_point("outputs.copied")
            message = (
                "" if tree is not None else "None of the declared paths is a file or a directory with files."
            )
            self._update_if_waiting(
                outputs, held, state=OutputState.STORED, message=message, tree=tree, stored_at=now,
                skipped=dict(listing.skipped),
            )  # fmt: skip
