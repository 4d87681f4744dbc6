"""Find problems with a pool's quotas and with its running and pending workloads."""

from collections.abc import Iterator

from django.db.models import Sum

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count, format_gpus, token_to_words
from pools.models.node import PENDING
from projects.models import Phase, Pod, PodState, Quota, Workload
from projects.models.tenants import applies_to_any
from projects.queries.idle_gpus import idle_since
from scheduler.reports.pool_findings import MAX_NAMED, Finding, PoolFacts, RemedyForm, Severity, to_sentence
from scheduler.reports.queues.pending_reasons import count_by_reason

IDLE_MAX = 1000  # maximum number of running workloads checked for idle GPUs
START_FAILED = "could not be started yet: "  # message prefix written by the scheduler


def quota_findings(facts: PoolFacts) -> Iterator[Finding]:
    departments = Quota.objects.filter(applies_to_any([facts.pool]), department__isnull=False)
    if not departments.exists():
        yield Finding(
            Severity.WARNING,
            "quotas",
            "No department has a quota in this pool, so all workloads are over quota.",
            f"Set one with `berth quota set NAME --pool {facts.pool} --gpu ...`.",
            RemedyForm.QUOTAS,
        )
        return
    total = departments.filter(pool=facts.pool).aggregate(total=Sum("gpu_milli"))["total"] or 0
    gpus = max(facts.pool.max_gpus, sum(node.gpus for node in facts.nodes)) * 1000
    if total > gpus:
        yield Finding(
            Severity.WARNING,
            "quotas",
            f"Department quotas of {format_gpus(total)} exceed the pool's {format_gpus(gpus)}, so not all "
            "can be met at once.",
            "Lower quotas or add nodes.",
            RemedyForm.QUOTAS,
        )


def start_findings(facts: PoolFacts) -> Iterator[Finding]:
    """Report pods that cannot start because the pool's runtime or cluster rejects them."""
    rows = Pod.objects.filter(
        node__pool=facts.pool, state=PodState.STARTING, message__startswith=START_FAILED
    )
    by_reason: dict[str, list[str]] = {}
    for pod in rows.select_related("workload").order_by("workload__name", "rank", "pk"):
        reason = pod.message.removeprefix(START_FAILED)
        by_reason.setdefault(reason, []).append(pod.name)
    for reason, names in sorted(by_reason.items(), key=lambda entry: (-len(entry[1]), entry[0]))[:MAX_NAMED]:
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        yield Finding(
            Severity.WARNING,
            "failed starts",
            f"{', '.join(names[:MAX_NAMED])}{more} cannot be started: {to_sentence(reason)}",
            "Berth tries again. A workload that has not started after 5 minutes fails with this reason.",
        )


def idle_findings(facts: PoolFacts) -> Iterator[Finding]:
    """Report GPUs that have been idle for longer than the warning threshold, without naming their
    workloads.
    """
    rows = Workload.objects.filter(phase=Phase.RUNNING, pool=facts.pool, gpu_milli_now__gt=0)
    gpus = dict(rows.order_by("-gpu_milli_now", "pk").values_list("pk", "gpu_milli_now")[:IDLE_MAX])
    idle = idle_since(gpus, facts.now) if gpus else {}
    if not idle:
        return
    held = sum(gpus[pk] for pk in idle)
    yield Finding(
        Severity.WARNING,
        "idle GPUs",
        f"{format_count(len(idle), 'workload')} {'holds' if len(idle) == 1 else 'hold'} "
        f"{format_gpus(held)} without using {'it' if held == MILLI else 'them'}.",
        f"Ask the owners, or end such workloads with `berth pool edit {facts.pool} --idle-rule ...`.",
        RemedyForm.IDLE,
    )


def queue_findings(facts: PoolFacts) -> Iterator[Finding]:
    queued = (Phase.PENDING, Phase.RESERVED)
    rows = Workload.objects.filter(phase__in=queued, pools__contains=[facts.pool.name])
    counts = count_by_reason(rows)
    if not counts.total:
        return
    named = ", ".join(
        f"{count} {token_to_words(reason).lower() or 'not considered yet'}"
        for reason, count in counts.by_reason[:MAX_NAMED]
    )
    shown = f": {named}" if named else ""
    yield Finding(
        Severity.NOTE,
        "pending workloads",
        f"{format_count(counts.total, 'workload')} {_is_or_are(counts.total)} pending{shown}.",
        f"See `berth queue {facts.pool}`, and `berth why WORKLOAD` for one of them.",
        RemedyForm.QUEUE,
    )
    pool = facts.pool
    if pool.is_elastic and pool.nodes_max is not None and pool.nodes_desired >= pool.nodes_max:
        yield Finding(
            Severity.NOTE,
            "maximum size",
            f"The pool is at its maximum of {format_count(pool.nodes_max, 'node')}{_booting_clause(facts)}.",
            f"Raise it with `berth pool edit {pool} --nodes {pool.nodes_min}:...` if quotas need more.",
            RemedyForm.MAXIMUM,
        )


def _booting_clause(facts: PoolFacts) -> str:
    count = len(facts.nodes_in_states(*PENDING))
    if not count:
        return ""
    return f"; {count} of them {_is_or_are(count)} booting"


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"
