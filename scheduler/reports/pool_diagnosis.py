"""Diagnose a node pool: its problems, each with a remedy, most important first."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from berth.core.wording.words import format_count
from pools.engine.image_policy import read_policy
from pools.engine.ssh_hosts import HostState
from pools.gpu_models import describe_models, differing_models
from pools.models import Machine, NodePool, SshHost
from pools.models.node import PENDING, NodeState
from pools.providers.base import ProviderError
from pools.providers.slurm.rest.token import EXPIRES_SOON, token_expiry
from pools.runtimes.enclosure.levels import IsolationLevel
from pools.selectors import nodes, overdue_drains, ready_threshold, workloads_on_nodes
from pools.services.access.slurm import read_slurm_token
from pools.services.ssh.hosts import displayed_state
from scheduler.reports.pool_findings import (
    MAX_NAMED,
    Check,
    Finding,
    PoolFacts,
    RemedyForm,
    Severity,
    format_age,
    format_gpus_or_cpus,
    format_node_names,
    has_or_have,
    is_or_are,
    node_names,
    to_sentence,
)
from scheduler.reports.workload_findings import idle_findings, queue_findings, quota_findings, start_findings

RECONCILER = "reconciler"  # name of the finding that a pool has not been compared with its provider
OVERDUE_TICKS = 4
TICK_GRACE = timedelta(seconds=30)
MACHINE_SILENCE = timedelta(seconds=60)
HOST_REMEDIES = {
    "host_key": "If the fingerprint matches the host's, pin the key with `berth pool host accept {pool} "
    "HOST`. Berth does not log in to the host before that.",
    "conflict": "Remove the host from the settings of pool {pool}, or remove the machine from the "
    "pool to which it already belongs.",
    "login": "Check the user and the key. The public key must be in the host's authorized_keys.",
}


def diagnose_pool(pool: NodePool, now: datetime) -> list[Finding]:
    """Return the pool's problems: errors, then warnings, then notes, each in order of importance."""
    facts = PoolFacts(pool, list(nodes().filter(pool=pool)), now)
    findings = [finding for check in CHECKS for finding in check(facts)]
    return sorted(findings, key=lambda finding: list(Severity).index(finding.severity))


def find_pool_errors(pool: NodePool, now: datetime) -> list[Finding]:
    """Return the errors found in the pool's own row, without reading its nodes and workloads."""
    facts = PoolFacts(pool, [], now)
    findings = [*_provider_findings(facts), *_boot_findings(facts)]
    return [finding for finding in findings if finding.severity == Severity.ERROR]


def _provider_findings(facts: PoolFacts) -> Iterator[Finding]:
    pool = facts.pool
    if pool.last_error and pool.last_error != pool.boot_error:
        yield Finding(
            Severity.ERROR,
            "provider",
            f"The provider {pool.provider} reports: {to_sentence(pool.last_error)}",
            f"Fix the cause, or the pool's settings with `berth pool edit {pool}`. The pool retries "
            "automatically.",
            RemedyForm.SETTINGS,
        )
    last = pool.ticked_at or pool.created_at
    allowed = OVERDUE_TICKS * timedelta(seconds=pool.reconcile_tick) + TICK_GRACE
    if facts.now - last > allowed:
        yield Finding(
            Severity.ERROR,
            RECONCILER,
            f"The pool was last compared with its provider {format_age(facts.now - last)} ago; this "
            f"should happen every {format_count(pool.reconcile_tick, 'second')}.",
            "Use `berth health` to check that the scheduler is running.",
        )


def _boot_findings(facts: PoolFacts) -> Iterator[Finding]:
    pool = facts.pool
    if pool.provisioning_stopped:
        yield Finding(
            Severity.ERROR,
            "failed boots",
            to_sentence(pool.boot_error)
            if pool.boot_error
            else f"No nodes are requested after {format_count(pool.boot_failures, 'failed boot')}.",
            f"Fix the cause, then run `berth pool retry {pool}`.",
            RemedyForm.RETRY,
        )
    elif pool.boot_failures:
        failed = f"{format_count(pool.boot_failures, 'boot')} in a row failed."
        due = pool.boot_retry_at
        when = f" The next request for nodes is due at {due:%Y-%m-%d %H:%M:%S} UTC." if due else ""
        yield Finding(
            Severity.WARNING,
            "failed boots",
            f"{failed}{when}" + (f" {to_sentence(pool.boot_error)}" if pool.boot_error else ""),
            "See the phases on the nodes' pages.",
        )
    slow = [
        node
        for node in facts.nodes_in_states(*PENDING)
        if not node.queued and facts.now - node.created_at > timedelta(seconds=pool.boot_timeout) / 2
    ]
    if slow:
        oldest = max(facts.now - node.created_at for node in slow)
        reason = slow[0].not_ready_reason
        yield Finding(
            Severity.WARNING,
            "slow boots",
            f"{format_node_names(slow)} {is_or_are(slow)} not ready after up to {format_age(oldest)}; the "
            f"timeout is {format_age(timedelta(seconds=pool.boot_timeout))}."
            + (f" {slow[0].name}: {to_sentence(reason)}" if reason else ""),
            f"See `berth node describe {slow[0].name}` for the current phase.",
            RemedyForm.NODES,
            node_names(slow),
        )


def _queued_node_findings(facts: PoolFacts) -> Iterator[Finding]:
    queued = [node for node in facts.nodes_in_states(*PENDING) if node.queued]
    if queued:
        oldest = max(facts.now - node.created_at for node in queued)
        reason = queued[0].not_ready_reason
        yield Finding(
            Severity.WARNING,
            "queued nodes",
            f"{format_node_names(queued)} {has_or_have(queued)} been in the queue of provider "
            f"{facts.pool.provider} for up to {format_age(oldest)}."
            + (f" {queued[0].name}: {to_sentence(reason)}" if reason else ""),
            "They boot once the provider starts them. The boot timeout does not apply until then.",
            RemedyForm.NODES,
            node_names(queued),
        )


def _size_findings(facts: PoolFacts) -> Iterator[Finding]:
    pool = facts.pool
    usable = facts.nodes_in_states(NodeState.READY)
    if pool.expires_at is not None and pool.expires_at <= facts.now:
        yield Finding(
            Severity.WARNING,
            "expired",
            f"The pool expired {format_age(facts.now - pool.expires_at)} ago, so its nodes are drained.",
            f"Extend it with `berth pool edit {pool} --set expires_at=...`, or delete it.",
            RemedyForm.SETTINGS,
        )
    elif not facts.nodes and pool.nodes_desired == 0 and pool.provider == NodePool.Provider.STATIC:
        yield Finding(
            Severity.NOTE,
            "no nodes",
            "The pool has no nodes: no machine has joined.",
            *_remedy_for_missing_nodes(facts),
        )
    elif not facts.nodes and pool.nodes_desired == 0 and pool.is_elastic:
        yield Finding(
            Severity.NOTE,
            "no nodes",
            f"The pool has no nodes. It adds up to {pool.nodes_max} when workloads need them.",
        )
    elif not usable:
        yield Finding(
            Severity.ERROR,
            "no nodes",
            f"None of {format_count(max(pool.nodes_desired, len(facts.nodes)), 'node')} is ready.",
            *_remedy_for_missing_nodes(facts),
        )
    elif pool.operational_since is None and len(usable) < ready_threshold(pool):
        yield Finding(
            Severity.WARNING,
            "ready threshold",
            f"The pool does not accept workloads yet: {format_count(len(usable), 'node')} "
            f"{'is' if len(usable) == 1 else 'are'} ready, and its ready threshold "
            f"is {ready_threshold(pool)}.",
            f"Wait for the other nodes, or lower the threshold with `berth pool edit {pool} --set "
            "ready_threshold=...`.",
            RemedyForm.SETTINGS,
        )
    if pool.paused:
        yield Finding(
            Severity.WARNING,
            "paused",
            "The pool is paused: it does not scale, and ended nodes are not replaced.",
            f"Run `berth pool resume {pool}`.",
            RemedyForm.RESUME,
        )


def _remedy_for_missing_nodes(facts: PoolFacts) -> tuple[str, RemedyForm | None]:
    pool = facts.pool
    if pool.provider == NodePool.Provider.STATIC and not facts.nodes:
        text = (
            f"Join a machine: `berth machine token issue {pool}`, then `berth-agent install` on the machine."
        )
        return text, RemedyForm.MACHINES
    if facts.nodes and all(node.queued for node in facts.nodes):
        return "All nodes are in the provider's queue.", None
    states = {node.state for node in facts.nodes}
    if states and states <= {NodeState.CORDONED, NodeState.DRAINING}:
        return "All nodes are cordoned or draining. Run `berth node uncordon NODE`.", None
    return f"See `berth pool history {pool}` for the events of its nodes.", None


def _lost_capacity_findings(facts: PoolFacts) -> Iterator[Finding]:
    if lost_nodes := facts.nodes_in_states(NodeState.LOST):
        yield Finding(
            Severity.WARNING,
            "lost nodes",
            f"{format_node_names(lost_nodes)} {is_or_are(lost_nodes)} lost: the provider no longer lists the "
            "instance.",
            "Workloads on lost nodes are requeued. No action is needed unless nodes are lost repeatedly.",
            RemedyForm.NODES,
            node_names(lost_nodes),
        )
    interrupted = [node for node in facts.hosting_nodes if node.interruption_at is not None]
    if interrupted:
        first = min(node.interruption_at for node in interrupted if node.interruption_at)
        at = "at" if len(interrupted) == 1 else "the first at"
        yield Finding(
            Severity.WARNING,
            "announced ends",
            f"The provider reclaims {format_node_names(interrupted)} {at} {first:%Y-%m-%d %H:%M:%S} UTC.",
            fix=RemedyForm.NODES,
            nodes=node_names(interrupted),
        )
    overdue = list(overdue_drains(facts.now).filter(pool=facts.pool))
    if overdue:
        work = [
            entry for entries in workloads_on_nodes([n.pk for n in overdue]).values() for entry in entries
        ]
        yield Finding(
            Severity.WARNING,
            "overdue drains",
            f"{format_node_names(overdue)} {is_or_are(overdue)} still draining after the timeout of "
            f"{format_age(timedelta(seconds=facts.pool.drain_timeout))}"
            f"{': ' + ', '.join(map(str, work[:MAX_NAMED])) if work else ''}.",
            "The pods are now being stopped. If they keep running, check the node's agent.",
            RemedyForm.NODES,
            node_names(overdue),
        )
    if cordoned := facts.nodes_in_states(NodeState.CORDONED):
        yield Finding(
            Severity.WARNING,
            "cordoned nodes",
            f"{format_node_names(cordoned)} {is_or_are(cordoned)} cordoned: "
            f"{format_gpus_or_cpus(cordoned)} accept no new pods.",
            f"Run `berth node uncordon {cordoned[0].name}` when it may be used again."
            if len(cordoned) == 1
            else f"Run `berth node uncordon --pool {facts.pool}` when they may be used again.",
            RemedyForm.UNCORDON,
            node_names(cordoned),
        )
    silent = Machine.objects.filter(
        pool=facts.pool, departed_at=None, removed_at=None, last_seen_at__lt=facts.now - MACHINE_SILENCE
    ).order_by("last_seen_at")
    if count := silent.count():
        oldest = silent[0]
        yield Finding(
            Severity.WARNING,
            "silent machines",
            f"{format_count(count, 'machine')} {'has' if count == 1 else 'have'} not reported for over "
            f"{format_age(MACHINE_SILENCE)}. {oldest.name} last reported "
            f"{format_age(facts.now - oldest.last_seen_at)} ago.",
            "Check the network, and that the agent is running on the machine.",
            RemedyForm.MACHINES if facts.pool.provider == NodePool.Provider.STATIC else None,
        )


def _isolation_findings(facts: PoolFacts) -> Iterator[Finding]:
    reported = [(node, node.isolation) for node in facts.hosting_nodes if node.isolation is not None]
    images_required = read_policy(facts.pool.image_policy).mode == "require"
    questions: tuple[tuple[str, Severity, tuple[str, str], Callable[[dict[str, object]], bool], str], ...] = (
        ("images", Severity.ERROR if images_required else Severity.NOTE,
         ("cannot run container images", "cannot run container images"),
         lambda record: not record.get("images"), "images_obstacle"),
        ("isolation", Severity.WARNING,
         ("cannot isolate pods, so it serves one project at a time",
          "cannot isolate pods, so each serves one project at a time"),
         lambda record: record["level"] == IsolationLevel.NONE.value, "obstacle"),
        ("limits", Severity.WARNING,
         ("does not enforce all pod limits", "do not enforce all pod limits"),
         lambda record: bool(record.get("limits_obstacle")), "limits_obstacle"),
        ("system calls", Severity.NOTE,
         ("does not filter pods' system calls", "do not filter pods' system calls"),
         lambda record: not record.get("seccomp") and bool(record.get("seccomp_obstacle")),
         "seccomp_obstacle"),
    )  # fmt: skip
    for name, severity, problems, has_problem, obstacle in questions:
        affected = [(node, record) for node, record in reported if has_problem(record)]
        if affected:
            first, record = affected[0]
            reason = str(record.get(obstacle) or "")
            yield Finding(
                severity,
                name,
                f"{len(affected)} of {format_count(len(reported), 'node')} {problems[len(affected) > 1]}"
                + (f". {first.name} reports: {to_sentence(reason)}" if reason else "."),
                "Run `berth doctor` on the node for all checks.",
                RemedyForm.NODES,
                node_names(node for node, _ in affected),
            )


def _cluster_quota_findings(facts: PoolFacts) -> Iterator[Finding]:
    if obstacle := facts.pool.cluster_quotas_obstacle:
        yield Finding(
            Severity.WARNING,
            "cluster quotas",
            "Berth cannot read the quotas of the pool's cluster, so it notices them only when the cluster "
            f"rejects pods: {to_sentence(obstacle)}",
            "Grant the account list and watch for resourcequotas, or apply deploy/kubernetes/role.yaml.",
        )


def _gpu_model_findings(facts: PoolFacts) -> Iterator[Finding]:
    group = facts.pool.quota_group
    if group is not None and (models := differing_models(group.pools.order_by("name"))):
        yield Finding(
            Severity.WARNING,
            "GPU models",
            f"The pools of quota group {group.name} have different GPU models ({describe_models(models)}), "
            "but its quotas count all GPUs alike.",
            f"Remove the nodes with the other model, or take a pool out of the group with "
            f"`berth quota group edit {group.name} POOL...`.",
        )


def _slurm_token_findings(facts: PoolFacts) -> Iterator[Finding]:
    pool = facts.pool
    try:
        expiry = token_expiry(read_slurm_token(pool)) if pool.slurm_token_sealed else None
    except ProviderError:
        return  # the provider's error is reported elsewhere
    if expiry is None:
        return
    is_expired, is_urgent = expiry <= facts.now, expiry - facts.now < EXPIRES_SOON
    severity = Severity.ERROR if is_expired else Severity.WARNING if is_urgent else Severity.NOTE
    yield Finding(
        severity,
        "Slurm token",
        f"The token for slurmrestd {'expired' if is_expired else 'expires'} on {expiry:%Y-%m-%d %H:%M} UTC."
        + ("" if is_expired else " Slurm rejects it from then on, so no nodes are requested or cancelled."),
        f"Create another with `scontrol token lifespan=SECONDS`, and set it with `berth pool edit {pool} "
        "--slurm-token FILE`.",
        RemedyForm.SETTINGS,
    )


def _ssh_host_findings(facts: PoolFacts) -> Iterator[Finding]:
    pool = facts.pool
    rows = SshHost.objects.filter(pool=pool).select_related("machine").order_by("name")
    by_message: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        state = displayed_state(row, facts.now)
        if row.message or state is HostState.SILENT:
            message = to_sentence(
                row.message.replace(f"{row.address}: ", "") or "the agent no longer reports"
            )
            by_message.setdefault((row.problem, message), []).append(row.name)
    for (problem, message), names in sorted(by_message.items(), key=lambda entry: entry[0][0] != "host_key"):
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        yield Finding(
            Severity.ERROR if problem == "host_key" else Severity.WARNING,
            "SSH hosts",
            f"{', '.join(names[:MAX_NAMED])}{more}: {message}",
            HOST_REMEDIES.get(problem, "Berth will try again. See `berth pool host list {pool}`.").format(
                pool=pool
            ),
            RemedyForm.HOSTS,
        )


CHECKS: tuple[Check, ...] = (
    _provider_findings,
    _slurm_token_findings,
    _ssh_host_findings,
    _boot_findings,
    _queued_node_findings,
    _size_findings,
    _lost_capacity_findings,
    _isolation_findings,
    _cluster_quota_findings,
    _gpu_model_findings,
    quota_findings,
    start_findings,
    idle_findings,
    queue_findings,
)
