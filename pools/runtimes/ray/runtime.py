"""Ray runtime: each pod is a Ray job that runs on exactly its assigned node and devices."""

import random
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from pools.joining.instructions import Instructions
from pools.runtimes.base import (
    ChannelRejected,
    ClusterQuotas,
    Measurements,
    PodReport,
    PodSpec,
    PodState,
    RuntimeFailure,
    StopNotice,
)
from pools.runtimes.enclosure.levels import Isolation
from pools.runtimes.ledger import Ledger, LedgerEntry
from pools.runtimes.pod_dir import validate_name
from pools.runtimes.ray.agents import AgentUnreachable, NodeAgent
from pools.runtimes.ray.cluster import (
    AGENT_PORT,
    JOBS_PORT,
    NODE_LABEL,
    RayNode,
    device_resources,
    node_label,
)
from pools.runtimes.ray.files import RayFiles
from pools.runtimes.ray.jobs import Jobs, lost_report
from pools.runtimes.ray.logs import RayLogs
from pools.runtimes.ray.probes import ProbePods
from pools.runtimes.ray.scripts import CHECK, STOP, start_script, update_script, upgrade_script
from pools.runtimes.ray.starts import BackgroundStarts
from pools.runtimes.ray.watch import PodWatcher
from pools.runtimes.rendezvous import FIRST_PORT, LAST_PORT

TIMEOUT = httpx.Timeout(20.0, connect=2.0)
CHECK_TIMEOUT = httpx.Timeout(5.0, connect=2.0)  # short timeout, because failed checks are repeated
STARTING_REPORT = PodReport(PodState.STARTING)
ADDRESS_OF_RANK_0 = ""


class RayRuntime(RayFiles, RayLogs):
    """Runtime of all Ray pools. `nodes` returns the current nodes.

    All other state is under `root` and on the nodes. The names of this installation's jobs begin with
    `prefix`.
    """

    starts_in_background = True

    def __init__(self, root: Path, nodes: Callable[[], Iterable[RayNode]], prefix: str = "berth-") -> None:
        self.ledger = Ledger(root, syncs_starts=False)
        self._starts = BackgroundStarts()
        self._prefix, self._list_nodes = prefix, nodes
        self._nodes, self._has_loaded_nodes = dict[str, RayNode](), False
        self._adopted, self._last = set[str](), dict[str, PodReport]()
        # Agents and Ray heads serve plain HTTP inside the pool's network, so no certificates are loaded.
        # Each request carries the cluster's secret.
        self._http = httpx.Client(timeout=TIMEOUT, trust_env=False, verify=False)  # noqa: S501
        self._checks = httpx.Client(timeout=CHECK_TIMEOUT, trust_env=False, verify=False)  # noqa: S501
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="ray-nodes")
        self._watch = PodWatcher(self.poll_reports, self.fetch_log)
        self._probes = ProbePods(self, self.ledger.pod_ids, self._reload_nodes, self._drop_node_workspace)

    def start(self, spec: PodSpec) -> None:
        if self._starts.has_call(spec.pod_id):
            self._starts.wait_for_result(spec.pod_id)
        elif not self.ledger.has_ended(spec.pod_id):
            self._send(spec, self._record_placement(spec))
        self._watch.request_poll()

    def begin_start(self, spec: PodSpec) -> None:
        """Send the pod to its node in the background. If that fails, a later call to `start` raises the
        error.
        """
        with suppress(RuntimeFailure, OSError, ValueError):
            if not self._starts.has_call(spec.pod_id) and not self.ledger.has_ended(spec.pod_id):
                self._starts.begin(spec.pod_id, self._send, spec, self._record_placement(spec))

    def _record_placement(self, spec: PodSpec) -> RayNode:
        validate_name(spec.workspace)
        node = self._reload_nodes().get(spec.instance_id)
        if node is None:
            raise RuntimeFailure(f"node {spec.instance_id} is not in the cluster or has no address yet")
        self.ledger.record_placement(spec.pod_id, spec.instance_id, spec.workspace, received=False)
        return node

    def _send(self, spec: PodSpec, node: RayNode) -> None:
        """Send the pod and submit its Ray job. Runs in threads, without database access."""
        self.ledger.sync(spec.pod_id)
        entrypoint = self._agent(node).send_spec(spec)
        if self.ledger.record_possible_receipt(spec.pod_id) and entrypoint:
            self.ledger.sync(spec.pod_id)  # every pod with a Ray job must have a record on disk
            labels = {NODE_LABEL: node_label(node.instance_id)}
            self._jobs(node).submit(
                self._prefix + spec.pod_id, entrypoint, labels=labels, devices=device_resources(spec, node)
            )

    def stop(self, pod_id: str, grace_seconds: int, notice: StopNotice | None = None) -> None:
        self._starts.wait_ignoring_error(pod_id)
        if self.ledger.log_path(pod_id).exists():
            return
        nodes = self._reload_nodes()
        entry = self._find_entry(pod_id)
        if entry is None:
            self.ledger.end_unstarted_pod(pod_id)
            return
        node = nodes.get(entry.instance_id)
        if entry.ended is None and node is not None:
            try:
                self._agent(node).stop(pod_id, max(grace_seconds, 0), notice)
            except AgentUnreachable:
                if entry.received:
                    raise
                self.ledger.end_unstarted_pod(pod_id)
            self._watch.request_poll()

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        self._reload_nodes()
        for pod_id in pod_ids:
            self._find_entry(pod_id)
        return self.poll_reports(pod_ids)

    def poll_reports(self, pod_ids: Collection[str] | None = None) -> dict[str, PodReport]:
        """Return the reports of the pods (by default, all pods) without reloading the list of nodes."""
        if not self._has_loaded_nodes:
            return {}  # without a list of nodes, pods would be reported as lost
        reports: dict[str, PodReport] = {}
        pods_by_instance: dict[str, list[str]] = defaultdict(list)
        for pod_id in self.ledger.pod_ids() if pod_ids is None else pod_ids:
            entry = self.ledger.find(pod_id)
            if entry is None:
                reports[pod_id] = PodReport(PodState.UNKNOWN)
            elif entry.ended is not None:
                reports[pod_id] = entry.ended
            else:
                pods_by_instance[entry.instance_id].append(pod_id)
        for node_reports in self._threads.map(
            self._reports_from_node, pods_by_instance.keys(), pods_by_instance.values()
        ):
            reports.update(node_reports)
        self._last.update({i: report for i, report in reports.items() if report.state is PodState.RUNNING})
        return reports

    def _reports_from_node(self, instance_id: str, pod_ids: list[str]) -> dict[str, PodReport]:
        node = self._nodes.get(instance_id)
        if node is None:
            return {pod_id: self._end(pod_id, lost_report("node is gone")) for pod_id in pod_ids}
        try:
            reports = self._agent(node).get_reports(pod_ids)
        except RuntimeFailure as failure:
            return {i: self._unreachable_report(i, node, failure) for i in pod_ids}
        return {i: self._resolve_report(i, reports[i], node) for i in pod_ids}

    def _resolve_report(self, pod_id: str, report: PodReport, node: RayNode) -> PodReport:
        if report.state is PodState.EXITED:
            return self._end(pod_id, report)
        if report.state is not PodState.UNKNOWN:
            return report
        try:
            job = self._jobs(node).get_job(self._prefix + pod_id)
            if job is None:
                return report  # the next call to `start` resumes the pod
            if not job.has_ended:
                return STARTING_REPORT
            latest = self._agent(node).get_reports([pod_id])[pod_id]
        except RuntimeFailure:
            return STARTING_REPORT
        if latest.state is PodState.UNKNOWN:
            latest = lost_report(f"Ray could not start the job: {job.last_line}")
        return self._end(pod_id, latest) if latest.state is PodState.EXITED else latest

    def _unreachable_report(self, pod_id: str, node: RayNode, failure: RuntimeFailure) -> PodReport:
        """Return the report for a pod whose node does not respond. Ray detects dead nodes within seconds."""
        try:
            job = self._jobs(node).get_job(self._prefix + pod_id)
        except RuntimeFailure:
            job = None
        if job is not None and job.has_ended and isinstance(failure, AgentUnreachable):
            return self._end(pod_id, lost_report(f"node died: {job.last_line}"))
        return self._last.get(pod_id, STARTING_REPORT)

    def _end(self, pod_id: str, report: PodReport) -> PodReport:
        self._last.pop(pod_id, None)
        return self.ledger.record_final_report(pod_id, report)

    def list_pods(self) -> tuple[str, ...]:
        self._adopt_pods(self._reload_nodes().values())
        return self.ledger.pod_ids()

    def forget_in_background(self, pod_id: str) -> None:
        """Do nothing, because this runtime forgets pods one at a time."""

    def forget(self, pod_id: str) -> None:
        if self.get_reports([pod_id])[pod_id].state is not PodState.EXITED:
            return
        self._starts.wait_ignoring_error(
            pod_id
        )  # the pod may have ended before the result of its start was read
        entry = self.ledger.find(pod_id)
        node = self._nodes.get(entry.instance_id) if entry else None
        if node is not None:
            self.fetch_log(pod_id)
            self._agent(node).clear(pod_id)
            self._jobs(node).delete(self._prefix + pod_id)
        self.ledger.forget(pod_id)

    def fetch_log(self, pod_id: str) -> None:
        """Copy a finished pod's log from its node, because the node may be removed at any time."""
        entry = self.ledger.find(pod_id)
        node = self._nodes.get(entry.instance_id) if entry and entry.ended else None
        if node is not None and not self.ledger.log_path(pod_id).exists():
            agent = self._agent(node)
            self.ledger.save_log(pod_id, agent.log_chunks(pod_id), partial(agent.read_log_times, pod_id, 0))

    def drop_log(self, pod_id: str) -> None:
        if self.ledger.find(pod_id) is None:
            self.ledger.drop_log(pod_id)

    def drop_workspace(self, workspace: str) -> None:
        validate_name(workspace)
        for node in self._reload_nodes().values():
            self._agent(node).drop_workspace(workspace)

    def _drop_node_workspace(self, instance_id: str, workspace: str) -> None:
        node = self._nodes.get(instance_id)
        if node is not None:
            self._agent(node).drop_workspace(workspace)

    def _node_agent(self, pod_id: str) -> NodeAgent | None:
        entry, nodes = self.ledger.find(pod_id), self._reload_nodes()
        return self._agent(nodes[entry.instance_id]) if entry and entry.instance_id in nodes else None

    def open_channel(self, pod_id: str) -> socket.socket:
        self._reload_nodes()
        entry = self._find_entry(pod_id)
        node = self._nodes.get(entry.instance_id) if entry and not entry.ended else None
        if node is None:
            raise ChannelRejected("the pod is not running")
        return self._agent(node).open_channel(pod_id)

    def checkpointed_at(self, workspace: str) -> datetime | None:
        nodes = self._reload_nodes()
        entries = (self.ledger.find(pod_id) for pod_id in self.ledger.pod_ids())
        workspace_nodes = {entry.instance_id for entry in entries if entry and entry.workspace == workspace}
        agents = [self._agent(nodes[i]) for i in sorted(workspace_nodes) if i in nodes]
        return max(filter(None, (agent.checkpointed_at(workspace) for agent in agents)), default=None)

    def measure(self, pod_ids: Collection[str], instance_ids: Collection[str]) -> Measurements:
        nodes = self._reload_nodes()
        pods_by_instance: dict[str, list[str]] = {instance_id: [] for instance_id in instance_ids}
        for pod_id in pod_ids:
            entry = self.ledger.find(pod_id)
            if entry is not None and entry.ended is None:
                pods_by_instance.setdefault(entry.instance_id, []).append(pod_id)
        reachable = [nodes[instance_id] for instance_id in pods_by_instance if instance_id in nodes]
        pods = [pods_by_instance[node.instance_id] for node in reachable]
        measurements = list(self._threads.map(self._measure_node, reachable, pods))
        return Measurements(
            {pod_id: use for measured in measurements for pod_id, use in measured.pods.items()},
            {
                instance_id: devices
                for measured in measurements
                for instance_id, devices in measured.devices.items()
                if instance_id in instance_ids
            },
        )

    def _measure_node(self, node: RayNode, pod_ids: list[str]) -> Measurements:
        try:
            return self._agent(node).measure(pod_ids, node.instance_id)
        except (RuntimeFailure, ValueError):  # the agent is unreachable or too old for this request
            return Measurements({}, {})

    def get_isolation(self, instance_ids: Collection[str]) -> Mapping[str, Isolation]:
        nodes = self._reload_nodes()
        reachable = [nodes[instance_id] for instance_id in instance_ids if instance_id in nodes]
        reported = zip(reachable, self._threads.map(self._node_isolation, reachable), strict=True)
        return {node.instance_id: isolation for node, isolation in reported if isolation is not None}

    def _node_isolation(self, node: RayNode) -> Isolation | None:
        try:
            return self._agent(node, self._checks).get_isolation()
        except (RuntimeFailure, ValueError):  # the agent is unreachable or too old for this request
            return None

    def get_cluster_quotas(self, pool: str) -> ClusterQuotas:
        """Return no quotas, because only Berth's own quotas apply."""
        del pool
        return ClusterQuotas()

    def rendezvous(self) -> tuple[str, int]:
        """Return a random port and an empty address, which means the rank-0 node."""
        return ADDRESS_OF_RANK_0, random.randrange(FIRST_PORT, LAST_PORT)  # noqa: S311

    def wake_fds(self) -> tuple[int, ...]:
        return self._watch.fds()

    def clear_wakeups(self) -> None:
        self._watch.clear_wakeups()

    def instructions(self, node: Any) -> Instructions:
        """Return the node's scripts.

        Return no scripts until the addresses of the node and the head node are known.
        """
        nodes = self._reload_nodes()
        ray_node = nodes.get(node.instance_id)
        head = self._head(ray_node.pool) if ray_node is not None else None
        if ray_node is None or head is None:
            return Instructions()
        return Instructions(
            start_script(ray_node, head), STOP, CHECK, upgrade_script(), update_script(ray_node, head)
        )

    def unready_reasons(self, instance_ids: Collection[str]) -> dict[str, str]:
        """Return the reasons why instances that are not ready cannot run pods yet, keyed by instance ID."""
        if not instance_ids:
            return {}
        nodes = self._reload_nodes()
        reasons = self._threads.map(lambda instance_id: self._obstacle(nodes.get(instance_id)), instance_ids)
        by_instance = dict(zip(instance_ids, reasons, strict=True))
        reachable = {key: nodes[key].devices for key, reason in by_instance.items() if not reason}
        by_instance.update(self._probes.unready_reasons(reachable))
        return {instance_id: reason for instance_id, reason in by_instance.items() if reason}

    def _obstacle(self, node: RayNode | None) -> str:
        """Return why the node cannot run pods (no agent or no live raylet), or ""."""
        if node is None:
            return "the machine's address is not known yet"
        try:
            self._agent(node, self._checks).list_pods()
            state = self._jobs(node, self._checks).node_state(node_label(node.instance_id))
        except (RuntimeFailure, LookupError, ValueError) as failure:
            return str(failure)
        return "" if state == "ALIVE" else f"raylet is {state.lower() or 'not registered'} at the head node"

    def _reload_nodes(self) -> dict[str, RayNode]:
        self._nodes = {node.instance_id: node for node in self._list_nodes() if node.address}
        self._has_loaded_nodes = True
        return self._nodes

    def _find_entry(self, pod_id: str) -> LedgerEntry | None:
        """Return the pod's record, or None if there is none.

        If necessary, look for the pod on the nodes that have not been searched yet.
        """
        entry = self.ledger.find(pod_id)
        new = [node for node in self._nodes.values() if node.instance_id not in self._adopted]
        if entry is None and new:
            self._adopt_pods(new)
            entry = self.ledger.find(pod_id)
        return entry

    def _adopt_pods(self, nodes: Iterable[RayNode]) -> None:
        """Record the pods that run on the nodes but have no local record."""
        recorded_ids = set(self.ledger.pod_ids())
        listed = list(nodes)
        for node, node_pod_ids in zip(listed, self._threads.map(self._list_node_pods, listed), strict=True):
            for pod_id in node_pod_ids:
                if pod_id not in recorded_ids and not self.ledger.log_path(pod_id).exists():
                    self.ledger.record_placement(pod_id, node.instance_id, "adopted", received=True)

    def _list_node_pods(self, node: RayNode) -> tuple[str, ...]:
        try:
            pod_ids = self._agent(node).list_pods()
        except RuntimeFailure:
            return ()
        self._adopted.add(node.instance_id)
        return pod_ids

    def _agent(self, node: RayNode, client: httpx.Client | None = None) -> NodeAgent:
        return NodeAgent(client or self._http, f"http://{node.address}:{AGENT_PORT}", node.secret)

    def _jobs(self, node: RayNode, client: httpx.Client | None = None) -> Jobs:
        head = self._head(node.pool)
        if head is None:
            raise RuntimeFailure(f"pool {node.pool} has no head node")
        return Jobs(client or self._http, f"http://{head.address}:{JOBS_PORT}", node.secret)

    def _head(self, pool: str) -> RayNode | None:
        return next((node for node in self._nodes.values() if node.is_head and node.pool == pool), None)
