"""Fetch the S3 volumes of a pod.

Berth's server lists the objects and signs their URLs, so the node needs no credentials. Files are hard links
to the cache, or copies if the pod may write to the volume.
"""

from __future__ import annotations

import os
import shutil
import time

from pools.runtimes.shim.interrupts import Interrupts
from pools.runtimes.shim.records import Record
from pools.runtimes.shim.transfers.cache import Cache
from pools.runtimes.shim.transfers.child import (
    FAILED,
    PROGRESS,
    REPORT_SECONDS,
    Transfer,
    TransferFailure,
    send,
)
from pools.runtimes.shim.transfers.copies import copy_objects, write_copy_record
from pools.runtimes.shim.transfers.downloads import ObjectChanged, download_objects
from pools.runtimes.shim.transfers.http import open_url, read_json
from pools.runtimes.shim.transfers.listing import Listing, Object, UnusableListing

DIRECTORY = "volumes"  # subdirectory of the pod's record directory; the pod cannot see it
LISTINGS_MAX = 3  # maximum number of listings while objects keep changing
WAIT_SECONDS = 2.0  # seconds between checks of whether earlier pods' changes have been stored
_MB = 1e6


def fetch_volumes(directory: str, order: Record, secret: str, interrupts: Interrupts) -> tuple[str, str]:
    """Fetch all S3 volumes of the pod.

    Return an error message and, if the pod was stopped, the cause. Each is "" if it does not apply.
    """
    writable = {value for key, value in order if key == "writable_volume"}
    for key, value in order:
        if key == "synced_volume":
            name, _, source = value.partition(" ")
            fetch = VolumeFetch(name, source, name in writable, directory, dict(order), secret, interrupts)
            if failure := fetch.run():
                return failure, fetch.cause
    return "", ""


class _ChangesPending(Exception):
    """Raised while changes by earlier pods to the volume are waiting to be uploaded."""


class VolumeFetch(Transfer):
    """Transfer of one volume. Volumes with the same `source` share cached objects."""

    stopped = "stopped before its volumes had been fetched"

    def __init__(
        self, name: str, source: str, is_writable: bool, directory: str, order: dict[str, str], secret: str,
        interrupts: Interrupts,
    ) -> None:  # fmt: skip
        super().__init__(directory, order, secret, interrupts)
        self._name, self._is_writable = name, is_writable
        self._place = f"{directory}/{DIRECTORY}/{name}"
        self._cache = Cache(order["volume_cache"], source)
        self._url, self._ca = f"{order['volumes_url']}/{name}", order["download_ca"]
        self.progress = f"fetching the volume {name}"
        self.failure = f"the volume {name} could not be fetched"

    def run(self) -> str:
        try:
            return super().run()
        except OSError as error:
            return f"{self.failure}: {error.strerror or error}"

    def prepare(self) -> None:
        """Delete an earlier attempt's files, and create the parent directory."""
        shutil.rmtree(self._place, ignore_errors=True)
        os.makedirs(os.path.dirname(self._place), 0o700, exist_ok=True)

    def transfer(self, output: int, is_broken: bool) -> None:
        self._output, self._next_report = output, 0.0
        os.umask(0o022)
        for _ in range(LISTINGS_MAX):
            try:
                objects = self._lock_and_list()
                self._download([entry for entry in objects if not self._cache.has(entry)], objects)
                self._create_volume_directory(objects)
            except ObjectChanged:
                self._cache.release()
                self._report_child("objects changed; listing them again")
            except UnusableListing as error:
                raise TransferFailure(FAILED, str(error)) from error
            else:
                self._cache.trim()
                self._cache.release()
                return
        raise TransferFailure(
            FAILED,
            f"objects kept changing or disappearing during all {LISTINGS_MAX} attempts. Resubmit once the "
            "volume has stopped changing",
        )

    def _wait_for_cache(self, seconds: float) -> None:
        size = self._cache.stored_bytes() / _MB
        self._report_child(f"waiting for another pod on this node to fetch them, {size:,.0f} MB so far")
        time.sleep(seconds)

    def _lock_and_list(self) -> list[Object]:
        """Lock the cache, and list the objects once the changes of earlier pods have been uploaded.

        Raises TransferFailure and UnusableListing.
        """
        while True:
            self._cache.lock(self._wait_for_cache)
            try:
                return self._list_objects()
            except _ChangesPending as pending:
                self._cache.release()
                self._report_child(str(pending))
                time.sleep(WAIT_SECONDS)

    def _list_objects(self) -> list[Object]:
        """List the volume's objects. Raises TransferFailure, UnusableListing and _ChangesPending."""
        import urllib.parse

        listing, after = None, ""
        while listing is None or after:
            url = f"{self._url}/objects?after={urllib.parse.quote(after, safe='')}"
            page = read_json(open_url(url, self._secret, self._ca))
            if page.get("waiting_for"):
                raise _ChangesPending(page["waiting_for"])
            listing = listing or Listing(int(page["size_max"]), may_be_empty=self._is_writable)
            listing.add(Object(**entry) for entry in page["objects"])
            after = page["next"] or ""
            self._report_child(f"listed {len(listing.objects):,} objects")
        listing.check()
        return listing.objects

    def _download(self, missing: list[Object], objects: list[Object]) -> None:
        """Download the missing objects into the cache. Raises TransferFailure and ObjectChanged."""
        size = sum(entry.size for entry in missing)
        needed = size + (sum(entry.size for entry in objects) if self._is_writable else 0)
        free = self._cache.make_room(needed, objects)
        if free < needed:
            raise TransferFailure(
                FAILED,
                f"the volume needs {needed / _MB:,.0f} MB more on the node, but only "
                f"{max(free, 0) / _MB:,.0f} MB of the node's disk are available for volumes. Use another "
                "pool",
            )

        def sign(entries: list[Object]) -> list[str]:
            files = [{"path": entry.path, "etag": entry.etag} for entry in entries]
            answer = read_json(open_url(f"{self._url}/urls", self._secret, self._ca, {"objects": files}))
            return [str(url) for url in answer["urls"]]

        def report(count: int, received: int) -> None:
            self._report_child(
                f"{received / _MB:,.0f} of {size / _MB:,.0f} MB, {count:,} of {len(missing):,} objects"
            )

        download_objects(missing, self._cache, sign, report)

    def _create_volume_directory(self, objects: list[Object]) -> None:
        """Create the volume's directory, and move it to its final path once it is complete."""
        draft = f"{self._place}.new"
        shutil.rmtree(draft, ignore_errors=True)
        os.mkdir(draft)
        if self._is_writable:
            total = f"{len(objects):,} objects"
            copy_objects(
                objects, self._cache, draft, int(self._order.get("uid", "0")),
                lambda count: self._report_child(f"copied {count:,} of {total}"),
            )  # fmt: skip
            os.rename(draft, self._place)
            write_copy_record(objects, self._place)
        else:
            self._link_objects(objects, draft)
            os.rename(draft, self._place)

    def _link_objects(self, objects: list[Object], draft: str) -> None:
        made = {""}
        for entry in objects:
            parent = entry.path.rpartition("/")[0]
            if parent not in made:
                os.makedirs(f"{draft}/{parent}", exist_ok=True)
                made.add(parent)
            self._cache.link(entry, f"{draft}/{entry.path}")

    def _report_child(self, text: str) -> None:
        """Send the progress to the shim, at most once a second."""
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_SECONDS
            send(self._output, PROGRESS, f"{self.progress}: {text}")
