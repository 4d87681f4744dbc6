"""Deliver code from Berth's server to the init containers of starting pods."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.loop import CHANNELS
from pools.kubernetes.code.transfer import CodeSource, TransferFailed, TransferInterrupted, send_code
from pools.runtimes.base import PodSpec
from pools.runtimes.shim.transfers.child import PAUSES

# Maximum concurrent transfers per process, to protect the API servers that they pass through.
TRANSFERS_MAX = 8
PROGRESS = "copying the code"
FAILURE = "the code could not be copied to the pod"


@dataclass(slots=True)
class Delivery:
    """Delivery of one pod's code. `failure` says why the pod cannot start, or is empty."""

    api: Api
    pod: str
    source: CodeSource | None = field(repr=False)
    progress: str = PROGRESS
    failure: str = ""
    transfer: "Future[None] | None" = None


class CodeDeliveries:
    """Deliveries of code to starting pods.

    `notify` is called when a delivery ends. Deliveries are not stored, so after a restart, the scheduler
    starts the pods again.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._deliveries: dict[str, Delivery] = {}
        self._slots = asyncio.Semaphore(TRANSFERS_MAX)

    def expect_pod(self, spec: PodSpec, api: Api, pod: str) -> None:
        """Record a pod that will need its code. `pod` is the pod's API path."""
        source = CodeSource(spec.code_url, spec.download_ca, spec.download_secret)
        with self._lock:
            self._deliveries.setdefault(spec.pod_id, Delivery(api, pod, source))

    def ensure_started(self, pod_id: str) -> Delivery | None:
        """Start the delivery of code to a pod, unless it has already started.

        Return the delivery, or None if this process did not start the pod.
        """
        with self._lock:
            delivery = self._deliveries.get(pod_id)
            if delivery is not None and delivery.transfer is None:
                delivery.transfer = CHANNELS.submit(self._deliver(delivery))
            return delivery

    def forget(self, pod_id: str) -> None:
        """Cancel and discard the delivery to a pod that has ended."""
        with self._lock:
            delivery = self._deliveries.pop(pod_id, None)
        if delivery is not None and delivery.transfer is not None:
            delivery.transfer.cancel()

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            async with self._slots:
                await self._send_with_retries(delivery)
        except TransferFailed as failure:
            delivery.failure = f"{FAILURE}: {failure}"
        except Exception as error:
            delivery.failure = f"{FAILURE}: {error!r}"
            raise
        finally:
            delivery.source = None
            self._notify()

    async def _send_with_retries(self, delivery: Delivery) -> None:
        """Send the code to the pod. Raises TransferFailed.

        Retries use the same pauses as the shims on nodes.
        """

        def report_progress(progress: str) -> None:
            delivery.progress = f"{PROGRESS}: {progress}"

        assert delivery.source is not None
        verifies = False
        for number, pause in enumerate((*PAUSES, None), 1):
            try:
                await send_code(
                    delivery.source, delivery.api, delivery.pod, report_progress, verifies=verifies
                )
                return
            except TransferInterrupted as interruption:
                if pause is None:
                    raise TransferFailed(str(interruption)) from interruption
                report_progress(f"{interruption}; attempt {number} of {len(PAUSES) + 1}")
                verifies = interruption.was_sending
            await asyncio.sleep(pause)
