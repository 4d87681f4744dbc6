"""Mirror of a cluster's nodes, pods and quotas, kept up to date by list and watch requests.

For pods that do not belong to this installation, the mirror stores only the resource requests. Quotas are
stored only for this installation's namespaces.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pools.kubernetes.api_server.api import CONNECTED, AccessDenied, Api, ApiError, Unreachable
from pools.kubernetes.files.container import ANNOTATION as FILES_ANNOTATION
from pools.kubernetes.manifests import INSTANCE_ANNOTATION, is_namespace_of
from pools.kubernetes.nodes import ENDED, INSTALLATION_LABEL, POOL_LABEL
from pools.kubernetes.reports import has_files_to_copy, read_report

log = logging.getLogger(__name__)

WATCH_SECONDS = 60
RETRY_SECONDS = 1.0
# Retry delay if access is denied, because the permission to list quotas is optional.
DENIED_RETRY_SECONDS = 30.0
DENIED = (403, 404)
SYNC_SECONDS = 20.0  # maximum time that a reader waits for the first list
GONE = 410
NODES, QUOTAS = "nodes", "resourcequotas"
KINDS = {NODES: "/api/v1/nodes", "pods": "/api/v1/pods", QUOTAS: "/api/v1/resourcequotas"}
Key = tuple[str, str]  # namespace and name; the namespace is empty for nodes


class Mirror:
    """Mirror of a cluster.

    Its background threads start with the first read. `on_change` is called when a node, a quota or the report
    of one of this installation's pods changes, and `on_deleted` with the last state of each deleted pod.
    `nodes_changed_at` is when the mirror last noticed that the nodes had changed.
    """

    def __init__(
        self, api: Api, installation: str, on_change: Callable[[], None],
        on_deleted: Callable[[Mapping[str, Any]], None], now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._api, self._installation, self._now = api, installation, now
        self.nodes_changed_at: datetime | None = None
        self._on_change, self._on_deleted = on_change, on_deleted
        self._lock = threading.Lock()
        self._objects: dict[str, dict[Key, Mapping[str, Any]]] = {kind: {} for kind in KINDS}
        # This installation's pods by pool and name, recomputed on the first read after a change.
        self._own_pods: dict[str, dict[str, Mapping[str, Any]]] | None = None
        self._noted: dict[Key, float] = {}  # pods created by this process, with their creation times
        self._errors: dict[str, Unreachable] = {}
        self._synced = {kind: threading.Event() for kind in KINDS}
        # Each event is set after the first list or the first error.
        self._answered = {kind: threading.Event() for kind in KINDS}
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._started_at = 0.0
        # Resource version of the last list or change of each kind, or "" if the kind must be listed.
        self._versions = dict.fromkeys(KINDS, "")
        self.quota_obstacle = ""

    def close(self) -> None:
        self._closed.set()

    def nodes(self) -> list[Mapping[str, Any]]:
        """Return all nodes. Raises Unreachable while the API server does not respond."""
        return self._read(NODES, SYNC_SECONDS)

    def pods(self, patience: float = SYNC_SECONDS) -> list[Mapping[str, Any]]:
        """Return this installation's pods, and all other pods that have been scheduled.

        Wait up to `patience` seconds for the first response. Raises Unreachable.
        """
        return self._read("pods", patience)

    def own_pods(self, pool: str, patience: float = SYNC_SECONDS) -> Mapping[str, Mapping[str, Any]]:
        """Return this installation's pods in a pool, keyed by name.

        Waits like `pods`, and raises the same errors.
        """
        self._wait("pods", patience)
        with self._lock:
            if self._own_pods is None:
                self._own_pods = {}
                for (_, name), pod in self._objects["pods"].items():
                    if self.is_own_pod(pod):
                        of_pool = pod["metadata"]["labels"].get(POOL_LABEL, "")
                        self._own_pods.setdefault(of_pool, {})[name] = pod
            return self._own_pods.get(pool, {})

    def quotas(self, patience: float = SYNC_SECONDS) -> list[Mapping[str, Any]]:
        """Return the ResourceQuotas of this installation's namespaces.

        Waits like `pods`, and raises the same errors. If Berth may not list them, the result is empty and
        `quota_obstacle` says why.
        """
        return self._read(QUOTAS, patience)

    def is_own_pod(self, pod: Mapping[str, Any]) -> bool:
        return (pod["metadata"].get("labels") or {}).get(INSTALLATION_LABEL) == self._installation

    def add_created_pod(self, pod: Mapping[str, Any]) -> None:
        """Add a new pod to the mirror, unless the watch has already reported it."""
        key = _object_key(pod)
        with self._lock:
            self._noted[key] = time.monotonic()
            self._objects["pods"].setdefault(key, self._trim("pods", pod) or pod)
            self._own_pods = None

    def _read(self, kind: str, patience: float) -> list[Mapping[str, Any]]:
        self._wait(kind, patience)
        with self._lock:
            return list(self._objects[kind].values())

    def _wait(self, kind: str, patience: float) -> None:
        """Wait until objects of this kind have been listed once. Raises Unreachable."""
        self._start()
        remaining = self._started_at + patience - time.monotonic()
        self._answered[kind].wait(max(remaining, 0))
        if error := self._errors.get(kind):
            raise type(error)(str(error))
        if not self._synced[kind].is_set():
            raise Unreachable(f"{self._api.server} has not returned its list of {kind} yet")

    def _start(self) -> None:
        with self._lock:
            if self._threads:
                return
            self._started_at = time.monotonic()
            self._threads = [
                threading.Thread(target=self._follow, args=(kind,), name=f"kubernetes-{kind}", daemon=True)
                for kind in KINDS
            ]
        for thread in self._threads:
            thread.start()

    def _follow(self, kind: str) -> None:
        while not self._closed.is_set():
            try:
                if not self._versions[kind]:
                    self._versions[kind] = self._list(kind)
                self._watch(kind)
            except ApiError as error:
                has_listed, self._versions[kind] = self._versions[kind] != "", ""
                if kind == QUOTAS and error.status in DENIED:
                    self._continue_without_quotas(error.message, has_listed=has_listed)
                elif error.status != GONE:
                    denied = AccessDenied if error.status in (401, 403) else Unreachable
                    self._record_failure(kind, denied(f"{self._api.server}: {error.message}"))
            except Unreachable as error:
                self._record_failure(kind, error)
            except Exception:
                log.exception("the %s of %s cannot be followed", kind, self._api.server)
                self._versions[kind] = ""
                self._record_failure(kind, Unreachable(f"{self._api.server} sent an unexpected response"))

    def _record_failure(self, kind: str, error: Unreachable) -> None:
        if self._closed.is_set():
            return
        if str(self._errors.get(kind)) != str(error):
            log.warning("the %s of a cluster cannot be followed: %s", kind, error)
        self._errors[kind] = error
        self._answered[kind].set()
        self._closed.wait(RETRY_SECONDS)

    def _continue_without_quotas(self, message: str, *, has_listed: bool) -> None:
        """Record why quotas cannot be read. Continue with the last list of quotas, if any."""
        with self._lock:
            self.quota_obstacle = message
            if not has_listed:
                self._objects[QUOTAS] = {}
        self._mark_synced(QUOTAS)
        self._closed.wait(DENIED_RETRY_SECONDS)

    def _list(self, kind: str) -> str:
        started = time.monotonic()
        listed: dict[Key, Mapping[str, Any]] = {}
        version = ""
        for page, page_version in self._api.pages(KINDS[kind]):
            trimmed = ((item, self._trim(kind, item)) for item in page)
            listed |= {_object_key(item): part for item, part in trimmed if part is not None}
            version = page_version
        with self._lock:
            before = self._objects[kind]
            # The response may lack pods that were created after the list request was sent.
            self._noted = {key: at for key, at in self._noted.items() if at >= started - 1}
            newer = {key: before[key] for key in self._noted if key in before} if kind == "pods" else {}
            self._objects[kind] = {**newer, **listed}
            self._own_pods = None
        self._mark_synced(kind)
        if kind == QUOTAS and before != listed:
            self._on_change()
        if kind == NODES and _node_states(before) != _node_states(listed):
            self._announce_nodes()
        for key, item in before.items():
            if kind == "pods" and key not in listed and key not in newer and self.is_own_pod(item):
                self._on_deleted(item)
        return version

    def _watch(self, kind: str) -> None:
        """Watch objects of this kind until the API server ends the watch.

        The next watch continues after the last change.
        """
        seconds = WATCH_SECONDS if kind == "pods" else WATCH_SECONDS + 7
        events = self._api.watch(KINDS[kind], self._versions[kind], seconds)
        for change, item in events:
            self._mark_synced(kind)
            if change == CONNECTED:
                if kind == QUOTAS:
                    self.quota_obstacle = ""
                continue
            if change != "BOOKMARK":
                self._apply_change(kind, change, item)
            self._versions[kind] = item["metadata"]["resourceVersion"]
            if self._closed.is_set():
                break
        self._errors.pop(kind, None)

    def _apply_change(self, kind: str, change: str, item: Mapping[str, Any]) -> None:
        key, trimmed = _object_key(item), self._trim(kind, item)
        is_deleted, is_own = change == "DELETED", kind == "pods" and self.is_own_pod(item)
        if is_deleted and is_own:
            self._on_deleted(item)
        with self._lock:
            before = self._objects[kind].get(key)
            if is_deleted or trimmed is None:
                self._objects[kind].pop(key, None)
                self._noted.pop(key, None)
            else:
                self._objects[kind][key] = trimmed
            if kind == "pods" and is_own:
                self._own_pods = None
            after = self._objects[kind].get(key)
            # Readers wait for this lock, so they see the change that woke them.
            if kind == NODES:
                if _node_state(before) != _node_state(after):
                    self._announce_nodes()
                return
            if kind == QUOTAS:
                is_news = before != after
            else:
                is_news = is_own and (
                    is_deleted
                    or before is None
                    or read_report(before) != read_report(item)
                    or has_files_to_copy(before) != has_files_to_copy(item)
                )
            if is_news:
                self._on_change()

    def _announce_nodes(self) -> None:
        self.nodes_changed_at = self._now()
        self._on_change()

    def _mark_synced(self, kind: str) -> None:
        self._errors.pop(kind, None)
        if not self._synced[kind].is_set():
            self._synced[kind].set()
            self._answered[kind].set()
            if kind == "pods":
                self._on_change()

    def _trim(self, kind: str, item: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the parts of an object that the mirror stores, or None if it ignores the object."""
        metadata, status = item["metadata"], item.get("status") or {}
        if kind == NODES:
            names = ("name", "uid", "labels", "deletionTimestamp")
            states = {key: status.get(key) for key in ("allocatable", "conditions", "addresses")}
            spec = {key: (item.get("spec") or {}).get(key) for key in ("unschedulable", "taints")}
            return {"metadata": _select_keys(metadata, names), "spec": spec, "status": states}
        if kind == QUOTAS:
            if not is_namespace_of(self._installation, metadata["namespace"]):
                return None
            parts = _select_keys(item, ("spec", "status"))
            return {"metadata": _select_keys(metadata, ("name", "namespace", "uid")), **parts}
        is_own, spec = self.is_own_pod(item), item["spec"]
        if not is_own and (not spec.get("nodeName") or status.get("phase") in ENDED):
            return None
        containers = {
            part: [
                _select_keys(each, ("name", "resources", "restartPolicy")) for each in spec.get(part) or ()
            ]
            for part in ("containers", "initContainers")
        }
        return {
            "metadata": _own_metadata(metadata)
            if is_own
            else _select_keys(metadata, ("name", "namespace", "uid")),
            "spec": {"nodeName": spec.get("nodeName"), "overhead": spec.get("overhead"), **containers},
            "status": _own_status(status) if is_own else {"phase": status.get("phase")},
        }


def _object_key(item: Mapping[str, Any]) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _node_states(nodes: Mapping[Key, Mapping[str, Any] | None]) -> dict[Key, tuple[Any, ...] | None]:
    return {key: _node_state(node) for key, node in nodes.items()}


def _node_state(node: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """Return the parts of a node's state that determine which pods it accepts.

    Return None if there is no node.
    """
    if node is None:
        return None
    metadata, spec, status = node["metadata"], node["spec"], node["status"]
    conditions = status.get("conditions") or ()
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    is_deleted = "deletionTimestamp" in metadata
    return (
        metadata.get("uid"), is_deleted, spec.get("unschedulable"), spec.get("taints"), ready,
        status.get("allocatable"),
    )  # fmt: skip


def _own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    annotations = _select_keys(metadata.get("annotations") or {}, (INSTANCE_ANNOTATION, FILES_ANNOTATION))
    names = ("name", "namespace", "uid", "labels", "deletionTimestamp", "deletionGracePeriodSeconds")
    return {**_select_keys(metadata, names), "annotations": annotations}


def _own_status(status: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in ("initContainerStatuses", "containerStatuses") if kind in status]
    containers = {
        kind: [_select_keys(each, ("name", "state")) for each in status[kind] or ()] for kind in kinds
    }
    names = ("phase", "reason", "message", "podIP", "conditions")
    return {**_select_keys(status, names), **containers}


def _select_keys(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
