"""A fake Kubernetes cluster whose scheduler and kubelets act at once and whose containers tests control."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pools.kubernetes.nodes import RequestTotals, pod_requests, total_requests
from pools.kubernetes.quantities import parse_quantity
from tests.fakes.kubernetes.files import FakeFiles, keeps_files
from tests.fakes.kubernetes.store import Object, Rejection, Store

GPU = "nvidia.com/gpu"


class FakeCluster:
    """A fake Kubernetes cluster. Pods start as soon as they fit on their node.

    Pods in `stubborn` ignore SIGTERM.

    Scripts in the containers that keep the files of pods run below `files`, if it is set. Pods whose names in
    Berth are in `short` have ended before they are seen running.

    `rejections` maps (verb, resource) to the response to such calls, and `is_down` breaks all connections.
    Calls in `lost_responses` take effect, but their connection breaks before the response. While `answers` is
    not set, the server accepts calls without responding.

    `calls` lists the called (verb, resource) pairs, and `watched_from` the versions from which watches of
    each resource began. The cluster's clock is ahead by `clock_ahead`.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.stubborn: set[str] = set()
        self.short: set[str] = set()
        self.short_has_address = True
        self.rejections: dict[tuple[str, str], Rejection] = {}
        self.is_down = False
        self.lost_responses: set[tuple[str, str]] = set()
        self.answers = threading.Event()
        self.answers.set()
        self.pulls_images = True
        self.clock_ahead = timedelta(0)
        self.files: FakeFiles | None = None
        self.calls: set[tuple[str, str]] = set()
        self.watched_from: defaultdict[str, list[int]] = defaultdict(list)
        self._logs: dict[str, list[tuple[str, bytes]]] = {}
        self._partial: dict[str, bytes] = {}
        self._addresses = itertools.count(10)
        self._moments = itertools.count(time.time_ns())

    # --- nodes and foreign pods

    def add_node(self, name: str, *, gpus: int = 0, cpu: str = "8", labels: Object | None = None) -> None:
        status = {
            "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110", GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": self._now()}],
            "addresses": [{"type": "InternalIP", "address": f"10.1.0.{next(self._addresses)}"}],
        }
        metadata = {"name": name, "uid": self._uid(), "labels": labels or {}}
        self.store.put("nodes", {"metadata": metadata, "spec": {}, "status": status})

    def change_node(self, name: str, **spec: Any) -> None:
        with self.store.lock:
            node = self.store.find("nodes", "", name)
            changed = {**node["spec"], **spec}
            self.store.put("nodes", {**node, "metadata": {**node["metadata"]}, "spec": changed})

    def set_ready(self, name: str, status: str, message: str = "") -> None:
        with self.store.lock:
            node = self.store.find("nodes", "", name)
            ready = {"type": "Ready", "status": status, "message": message, "lastTransitionTime": self._now()}
            changed = {**node["status"], "conditions": [ready]}
            self.store.put("nodes", {**node, "metadata": {**node["metadata"]}, "status": changed})

    def remove_node(self, name: str) -> None:
        self.store.remove("nodes", "", name)

    def add_foreign_pod(self, name: str, node: str, *, gpus: int = 0, namespace: str = "others") -> None:
        requests = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
        spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}
        metadata = {"name": name, "namespace": namespace, "uid": self._uid(), "labels": {"app": "others"}}
        self.store.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        self._update_quotas(namespace)

    # --- quotas

    def set_quota(self, namespace: str, name: str, **spec: Any) -> None:
        """Create or change a ResourceQuota. `hard` maps resource names to amounts."""
        with self.store.lock:
            earlier = self.store.objects.get(("resourcequotas", namespace, name))
            uid = earlier["metadata"]["uid"] if earlier is not None else self._uid()
            metadata = {"name": name, "namespace": namespace, "uid": uid}
            self.store.put("resourcequotas", {"metadata": metadata, "spec": spec, "status": {}})
            self._update_quotas(namespace)

    def _update_quotas(self, namespace: str) -> None:
        for quota in self._quotas(namespace):
            hard = quota["spec"]["hard"]
            status = {"hard": hard, "used": {each: str(self._used(namespace, each)) for each in hard}}
            if quota["status"] != status:
                self.store.put(
                    "resourcequotas", {**quota, "metadata": {**quota["metadata"]}, "status": status}
                )

    def _admit(self, pod: Object) -> None:
        """Reject a pod that exceeds a quota of its namespace, with the message of the API server."""
        namespace = pod["metadata"]["namespace"]
        for quota in self._quotas(namespace):
            for resource, limit in quota["spec"]["hard"].items():
                used, requested = self._used(namespace, resource), _amount(pod, resource)
                if requested > 0 and used + requested > parse_quantity(limit):
                    text = (
                        f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: '
                        f"{quota['metadata']['name']}, requested: {resource}={requested}, "
                        f"used: {resource}={used}, limited: {resource}={limit}"
                    )
                    raise Rejection(403, "Forbidden", text)

    def _quotas(self, namespace: str) -> list[Object]:
        return [
            quota
            for quota in self.store.of_kind("resourcequotas")
            if quota["metadata"]["namespace"] == namespace
        ]

    def _used(self, namespace: str, resource: str) -> Decimal:
        pods = [pod for pod in self.store.of_kind("pods") if pod["metadata"].get("namespace") == namespace]
        alive = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        return sum((_amount(pod, resource) for pod in alive), Decimal(0))

    # --- containers

    def pod(self, name: str) -> Object:
        return next(pod for pod in self.store.of_kind("pods") if pod["metadata"]["name"] == name)

    def end_pod(self, name: str, code: int, reason: str = "") -> None:
        with self.store.lock:
            pod = self.pod(name)
            if partial := self._partial.pop(name, b""):
                self._add_line(name, partial)
            running = pod["status"]["containerStatuses"][0]["state"].get("running") or {}
            ended = {
                "exitCode": code, "reason": reason or ("Error" if code else "Completed"),
                "startedAt": running.get("startedAt"), "finishedAt": self._now(),
            }  # fmt: skip
            phase = "Failed" if code else "Succeeded"
            if keeps_files(pod) and not self._are_copied(name):
                phase = "Running"
            self._set_container(pod, {"terminated": ended}, phase)

    def run(self, name: str, command: list[str]) -> tuple[int, bytes, bytes]:
        """Run a script in the container that keeps the pod's files. End the container if its work is done."""
        if self.files is None or not keeps_files(self.pod(name)):
            raise Rejection(404, "NotFound", "simulated pods run no commands")
        result = self.files.run(name, command)
        with self.store.lock:
            pod = self.pod(name)
            if self._are_copied(name):
                metadata, state = pod["metadata"], pod["status"]["containerStatuses"][0]["state"]
                if "deletionTimestamp" in metadata:
                    self._kill(metadata["namespace"], name, metadata["uid"], 143)
                elif "terminated" in state:
                    self._set_container(
                        pod, state, "Failed" if state["terminated"]["exitCode"] else "Succeeded"
                    )
        return result

    def _are_copied(self, name: str) -> bool:
        return self.files is not None and self.files.are_copied(name)

    def fail_pod(self, name: str, reason: str, message: str) -> None:
        """Make the node reject or evict the pod."""
        with self.store.lock:
            pod = self.pod(name)
            status = {"phase": "Failed", "reason": reason, "message": message}
            self.store.put("pods", {**pod, "metadata": {**pod["metadata"]}, "status": status})

    def write(self, name: str, data: bytes) -> None:
        """Write to the pod's log. Like containerd, deliver only complete lines."""
        with self.store.lock:
            *lines, rest = (self._partial.get(name, b"") + data).split(b"\n")
            for line in lines:
                self._add_line(name, line.removesuffix(b"\r") + b"\n")
            self._partial[name] = rest
            self.store.lock.notify_all()

    def log(self, name: str, since: str) -> bytes:
        with self.store.lock:
            lines = self._logs.get(name, ())
            return b"".join(f"{at} ".encode() + line for at, line in lines if at[:19] >= since[:19])

    def _add_line(self, name: str, line: bytes) -> None:
        nanoseconds = max(next(self._moments), time.time_ns())
        self._moments = itertools.count(nanoseconds + 1)
        seconds, fraction = divmod(nanoseconds, 10**9)
        stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._logs.setdefault(name, []).append((f"{stamp}.{fraction:09}Z", line))

    # --- the API server, the scheduler and the kubelets

    def forbid(self, verb: str, resource: str) -> None:
        """Remove a permission from the service account."""
        message = f'{resource} is forbidden: User "berth" cannot {verb} resource "{resource}" in API group ""'
        self.rejections[verb, resource] = Rejection(403, "Forbidden", message)

    def review(self, attributes: Object) -> Object:
        resource = "/".join(filter(None, [attributes["resource"], attributes["subresource"]]))
        rejection = self.rejections.get((attributes["verb"], resource))
        return {"status": {"allowed": rejection is None or rejection.status != 403}}

    def create_pod(self, pod: Object) -> Object:
        with self.store.lock:
            metadata = pod["metadata"]
            if ("pods", metadata["namespace"], metadata["name"]) in self.store.objects:
                raise Rejection(409, "AlreadyExists", f'pods "{metadata["name"]}" already exists')
            self.store.find("namespaces", "", metadata["namespace"])
            self._admit(pod)
            metadata |= {"uid": self._uid(), "creationTimestamp": self._now()}
            pod["status"] = {"phase": "Pending"}
            self.store.put("pods", pod)
            self._schedule(pod)
            self._update_quotas(metadata["namespace"])
            return self.store.find("pods", metadata["namespace"], metadata["name"])

    def delete_pod(self, namespace: str, name: str, grace: int | None) -> None:
        with self.store.lock:
            pod = self.store.find("pods", namespace, name)
            states = [each["state"] for each in pod["status"].get("containerStatuses") or ()]
            seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
            if not any("running" in state for state in states) or seconds == 0:
                self._remove_pod(namespace, name)
                return
            metadata = {
                **pod["metadata"],
                "deletionTimestamp": self._now(),
                "deletionGracePeriodSeconds": seconds,
            }
            self.store.put("pods", {**pod, "metadata": metadata})
            if keeps_files(pod):
                return  # kubelets report no changes until all containers have ended
            if name not in self.stubborn:
                self._kill(namespace, name, metadata["uid"], 143)
            else:
                threading.Timer(seconds, self._kill, (namespace, name, metadata["uid"], 137)).start()

    def _kill(self, namespace: str, name: str, uid: str, code: int) -> None:
        with self.store.lock:
            pod = self.store.objects.get(("pods", namespace, name))
            if pod is None or pod["metadata"]["uid"] != uid:
                return
            if "terminated" not in pod["status"]["containerStatuses"][0]["state"]:
                self.end_pod(name, code)
            self._remove_pod(namespace, name)

    def _remove_pod(self, namespace: str, name: str) -> None:
        self.store.remove("pods", namespace, name)
        self._update_quotas(namespace)
        for secret in self.store.of_kind("secrets"):
            if any(owner["name"] == name for owner in secret["metadata"]["ownerReferences"]):
                self.store.remove("secrets", namespace, secret["metadata"]["name"])

    def _schedule(self, pod: Object) -> None:
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        name = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        node = self.store.objects.get(("nodes", "", name))
        if node is None or not self._fits(pod, node):
            text = f"0/{len(self.store.of_kind('nodes'))} nodes are available: Insufficient {GPU}."
            condition = {
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text,
                "lastTransitionTime": self._now(),
            }  # fmt: skip
            self.store.put("pods", {**pod, "status": {"phase": "Pending", "conditions": [condition]}})
            return
        bound = {**pod, "spec": {**pod["spec"], "nodeName": name}, "metadata": {**pod["metadata"]}}
        if not self.pulls_images:
            waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
            self._set_container(bound, {"waiting": waiting}, "Pending")
            return
        bound["status"] = {"podIP": f"10.2.0.{next(self._addresses)}"}
        if bound["metadata"].get("annotations", {}).get("berth.dev/name") in self.short:
            ended = {"exitCode": 0, "startedAt": self._now(), "finishedAt": self._now()}
            bound["status"] = {"podIP": f"10.2.1.{next(self._addresses)}"} if self.short_has_address else {}
            self._set_container(bound, {"terminated": ended}, "Succeeded")
            return
        self._set_container(bound, {"running": {"startedAt": self._now()}}, "Running")

    def _fits(self, pod: Object, node: Object) -> bool:
        others = [
            pod_requests(each, GPU)
            for each in self.store.of_kind("pods")
            if each["spec"].get("nodeName") == node["metadata"]["name"]
        ]
        used, wanted = total_requests(others), pod_requests(pod, GPU)
        total: RequestTotals = total_requests([used, wanted])
        return total.gpus <= int(node["status"]["allocatable"][GPU])

    def _set_container(self, pod: Object, state: Object, phase: str) -> None:
        containers = [{"name": "main", "state": state}]
        if keeps_files(pod):
            ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
            is_running = phase == "Running"
            keeper = {"running": {"startedAt": self._now()}} if is_running else ended
            containers.append({"name": "files", "state": state if phase == "Pending" else keeper})
        status = {**pod["status"], "phase": phase, "containerStatuses": containers}
        self.store.put("pods", {**pod, "metadata": {**pod["metadata"]}, "status": status})
        self._update_quotas(pod["metadata"]["namespace"])

    def _now(self) -> str:
        return (datetime.now(UTC) + self.clock_ahead).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _uid(self) -> str:
        return f"uid-{next(self.store.uids)}"


def _amount(pod: Object, resource: str) -> Decimal:
    if resource == "pods":
        return Decimal(1)
    part, _, name = resource.rpartition("s.") if resource.startswith("limits.") else ("request", "", resource)
    amounts = pod["spec"]["containers"][0].get("resources", {}).get(f"{part}s", {})
    return parse_quantity(amounts.get(name.removeprefix("requests."), 0))
