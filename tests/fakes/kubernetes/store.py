"""Versioned Kubernetes objects, and the changes that watches receive."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]  # (kind, namespace, name)


class Rejection(Exception):
    """An error response of the API server."""

    def __init__(self, status: int, reason: str, message: str, headers: Object | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.headers = status, reason, headers or {}

    def body(self) -> Object:
        return {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status,
            "reason": self.reason, "message": str(self),
        }  # fmt: skip


class Store:
    def __init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.objects: dict[Key, Object] = {}
        self.uids = itertools.count(1)
        self._versions = itertools.count(1)
        self._changes: list[tuple[int, str, str, Object]] = []  # (version, kind, type, object)
        self._oldest = 0
        self.latest = 0

    def put(self, kind: str, item: Object) -> None:
        """Create or replace an object, and record the change."""
        with self.lock:
            metadata = item["metadata"]
            key = kind, metadata.get("namespace", ""), metadata["name"]
            self._record("MODIFIED" if key in self.objects else "ADDED", kind, item)
            self.objects[key] = item

    def remove(self, kind: str, namespace: str, name: str) -> None:
        with self.lock:
            item = self.objects.pop((kind, namespace, name), None)
            if item is not None:
                self._record("DELETED", kind, item)

    def find(self, kind: str, namespace: str, name: str) -> Object:
        try:
            return self.objects[kind, namespace, name]
        except KeyError:
            raise Rejection(404, "NotFound", f'{kind} "{name}" not found') from None

    def of_kind(self, kind: str) -> list[Object]:
        with self.lock:
            return [item for (each, _, _), item in sorted(self.objects.items()) if each == kind]

    def compact(self) -> None:
        """Forget all changes, so that watches from older versions fail."""
        with self.lock:
            self._changes.clear()
            self._oldest = self.latest
            self.lock.notify_all()

    def changes(self, kind: str, after: int, seconds: float) -> Iterator[tuple[int, str, Object] | None]:
        """Yield changes after a version until `seconds` pass without one.

        None means that the watch is still connected.
        """
        while True:
            with self.lock:
                if after < self._oldest:
                    raise Rejection(410, "Expired", "too old resource version")
                new = [change for change in self._changes if change[0] > after]
                if not new:
                    if not self.lock.wait(min(seconds, 0.2)):
                        seconds -= 0.2
                        if seconds <= 0:
                            return
                    yield None
                    continue
            for version, of, change, item in new:
                after = version
                if of == kind:
                    yield version, change, item

    def _record(self, change: str, kind: str, item: Object) -> None:
        self.latest = next(self._versions)
        item["metadata"]["resourceVersion"] = str(self.latest)
        self._changes.append((self.latest, kind, change, copy.deepcopy(item)))
        self.lock.notify_all()
