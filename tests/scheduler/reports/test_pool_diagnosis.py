"""Tests for the diagnosis of node pools."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pools.joining.sealed import seal
from pools.models import Machine, Node, NodePool, QuotaGroup
from pools.runtimes.base import RuntimeFailure
from scheduler.models import PodUtilization
from scheduler.reports.pool_diagnosis import diagnose_pool
from scheduler.reports.pool_findings import Finding, Severity
from tests import factories as make
from tests.cast import Cast
from tests.fakes.slurm.rest import TOKEN
from tests.pools.slurm.test_slurmrestd import token_expiring_at
from tests.scheduler.stage import Stage

REPORT = {"level": "users", "policy": "auto", "obstacle": "", "limits": ["memory"], "limits_obstacle": "",
          "images": "4.3.1", "images_obstacle": "", "seccomp": True, "seccomp_obstacle": ""}  # fmt: skip


@pytest.fixture
def cast(stage: Stage) -> Cast:
    return stage.cast


def healthy_pool(cast: Cast, **columns: object) -> NodePool:
    pool = make.pool("train", gpus=4, ticked_at=timezone.now(), **{"nodes_desired": 1, **columns})
    make.node(pool, isolation=REPORT)
    make.quota(cast.research, pool, 4)
    return pool


def findings(pool: NodePool) -> dict[str, Finding]:
    pool.refresh_from_db()
    return {finding.name: finding for finding in diagnose_pool(pool, timezone.now())}


def test_healthy_pool_has_no_findings(cast: Cast) -> None:
    assert findings(healthy_pool(cast)) == {}


def test_pool_diagnosis_lists_errors_before_warnings_and_notes(cast: Cast) -> None:
    pool = healthy_pool(cast, last_error="UnauthorizedOperation", paused=True)
    make.workload(cast.vision, "waits", pools=["train"])
    severities = [finding.severity for finding in diagnose_pool(pool, timezone.now())]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def test_nodes_queued_by_the_provider_are_named_with_the_reason(cast: Cast) -> None:
    pool = make.pool("hpc", gpus=2, ticked_at=timezone.now(), nodes_desired=2)
    make.quota(cast.research, pool, 2)
    reason = "Slurm job 7 is queued: jobs with a higher priority come first (Priority)"
    for _ in range(2):
        node = make.node(pool, state="requested", queued=True, not_ready_reason=reason)
        Node.objects.filter(pk=node.pk).update(created_at=timezone.now() - timedelta(hours=3))
    named = findings(pool)
    assert named["no nodes"].remedy == "All nodes are in the provider's queue."
    queued = named["queued nodes"]
    assert "have been in the queue of provider fake for up to 3 hours." in queued.finding
    assert queued.finding.endswith(f"{reason}.")
    assert "slow boots" not in named


@pytest.mark.parametrize(
    ("columns", "name", "severity", "words"),
    [
        ({"last_error": "no subnet"}, "provider", "error", "The provider fake reports: no subnet."),
        ({"ticked_at": timedelta(minutes=10)}, "reconciler", "error", "10 minutes ago"),
        (
            {"boot_failures": 5, "boot_error": "apt failed"},
            "failed boots", "error", "apt failed.",
        ),
        ({"boot_failures": 1}, "failed boots", "warning", "1 boot in a row failed."),
        ({"paused": True}, "paused", "warning", "does not scale"),
        ({"expires_at": timedelta(hours=3)}, "expired", "warning", "3 hours ago"),
        ({"nodes_max": 1, "gpus_per_node": 2}, "quotas", "warning", "4 GPUs exceed the pool's 4 GPUs"),
    ],
)  # fmt: skip
def test_each_pool_problem_is_reported(
    cast: Cast, columns: dict[str, object], name: str, severity: str, words: str
) -> None:
    pool = healthy_pool(cast)
    if name == "quotas":
        make.quota(cast.product, pool, 0.001)
        words = "4.001 GPUs exceed the pool's 4 GPUs"
    now = timezone.now()
    values = {key: now - value if isinstance(value, timedelta) else value for key, value in columns.items()}
    NodePool.objects.filter(pk=pool.pk).update(**values)
    finding = findings(pool)[name]
    assert finding.severity == severity and words in finding.finding


def test_unusable_nodes_are_named_with_their_gpus(cast: Cast) -> None:
    pool = healthy_pool(cast)
    make.node(pool, state="cordoned", isolation=REPORT)
    make.node(pool, state="lost")
    make.node(pool, state="booting", created_at=timezone.now() - timedelta(minutes=14))
    by_name = findings(pool)
    assert "train-1 is cordoned: 4 GPUs" in by_name["cordoned nodes"].finding
    assert "train-2 is lost" in by_name["lost nodes"].finding
    assert (
        by_name["slow boots"].finding
        == "train-3 is not ready after up to 14 minutes; the timeout is 15 minutes."
    )
    assert by_name.keys() == {"cordoned nodes", "lost nodes", "slow boots"}


def test_idle_gpu_finding_does_not_name_workloads(cast: Cast) -> None:
    pool = healthy_pool(cast)
    node = pool.nodes.get()
    idle, busy = (
        make.workload(cast.vision, name, phase="running", run=1, pool=pool) for name in ("idle-one", "busy")
    )
    make.used(make.place(busy, node, [1]), 80)
    pod = make.place(idle, node, [0])
    make.used(pod, 0, busy_at=make.ago(minutes=5))
    assert "idle GPUs" not in findings(pool), "below the warning threshold"
    PodUtilization.objects.filter(pod=pod).update(busy_at=make.ago(hours=2))
    assert findings(pool)["idle GPUs"].finding == "1 workload holds 1 GPU without using it."


def test_spot_interruption_of_a_node_is_reported_with_the_interruption_time(cast: Cast) -> None:
    pool = healthy_pool(cast)
    at = timezone.now() + timedelta(hours=1)
    make.node(pool, state="cordoned", isolation=REPORT, interruption_at=at)
    expected = f"The provider reclaims train-1 at {at:%Y-%m-%d %H:%M:%S} UTC."
    assert findings(pool)["announced ends"].finding == expected


def test_pool_without_ready_nodes_is_an_error_unless_it_is_scaled_to_zero(cast: Cast) -> None:
    pool = make.pool("idle", ticked_at=timezone.now())
    assert findings(pool)["no nodes"].severity is Severity.NOTE
    make.node(pool, state="cordoned")
    by_name = findings(pool)["no nodes"]
    assert by_name.severity is Severity.ERROR and "berth node uncordon" in by_name.remedy


@pytest.mark.heavy
def test_static_pool_without_machines_explains_how_a_machine_joins(cast: Cast) -> None:
    pool = make.pool("metal", provider="static", ticked_at=timezone.now(), nodes_desired=0, nodes_max=16)
    missing = findings(pool)["no nodes"]
    assert (missing.severity, missing.finding) == (
        Severity.NOTE, "The pool has no nodes: no machine has joined.",
    )  # fmt: skip
    assert "berth machine token issue metal" in missing.remedy
    assert "berth-agent install" in missing.remedy


@pytest.mark.heavy
def test_missing_image_support_is_an_error_only_if_images_are_required(cast: Cast) -> None:
    pool = healthy_pool(cast)
    pool.nodes.update(isolation={**REPORT, "images": "", "images_obstacle": "podman is missing. Install it."})
    finding = findings(pool)["images"]
    assert finding.severity is Severity.NOTE
    assert finding.finding.startswith("1 of 1 node cannot run container images. train-0 reports: podman is")
    NodePool.objects.filter(pk=pool.pk).update(image_policy={"mode": "require"})
    assert findings(pool)["images"].severity is Severity.ERROR


@pytest.mark.heavy
def test_nodes_without_isolation_are_counted(cast: Cast) -> None:
    pool = healthy_pool(cast)
    pool.nodes.update(isolation={**REPORT, "level": "none"})
    alone = "1 of 1 node cannot isolate pods, so it serves one project at a time."
    assert findings(pool)["isolation"].finding == alone
    make.node(pool, isolation={**REPORT, "level": "none"})
    both = "2 of 2 nodes cannot isolate pods, so each serves one project at a time."
    assert findings(pool)["isolation"].finding == both


@pytest.mark.heavy
def test_unresponsive_machine_is_named_with_the_age_of_its_last_report(cast: Cast) -> None:
    pool, now = healthy_pool(cast), timezone.now()
    Machine.objects.create(
        pool=pool, name="box-1", address="10.0.0.1", cpu_milli=1000, memory_mib=1024, joined_at=now,
        last_seen_at=now - timedelta(minutes=5),
    )  # fmt: skip
    assert "box-1 last reported 5 minutes ago" in findings(pool)["silent machines"].finding


@pytest.mark.heavy
def test_pool_without_department_quotas_is_reported(cast: Cast) -> None:
    pool = healthy_pool(cast)
    pool.quotas.all().delete()
    assert "No department has a quota" in findings(pool)["quotas"].finding


def test_pending_workloads_are_counted_by_reason(cast: Cast) -> None:
    pool = healthy_pool(cast, nodes_max=1)
    for number in range(3):
        make.workload(cast.vision, f"waits-{number}", pools=["train"], reason="InsufficientResources")
    by_name = findings(pool)
    assert by_name["pending workloads"].finding == "3 workloads are pending: 3 insufficient resources."
    make.workload(cast.vision, "next", pools=["train"], phase="reserved")
    counted = findings(pool)["pending workloads"].finding
    assert counted == "4 workloads are pending: 3 insufficient resources, 1 reserved."
    assert "maximum of 1 node" in by_name["maximum size"].finding


def test_pods_that_the_cluster_rejects_are_named_with_the_reason(stage: Stage) -> None:
    reason = "namespace berth-1-vision already exists, but does not belong to this installation"
    stage.runtime.next("start", *[RuntimeFailure(reason)] * 8)
    roles = [{"name": "worker", "replicas": 4, "gpu": 1}]
    stage.submit(roles=roles)
    stage.tick(2)
    finding = findings(stage.cast.pool)["failed starts"]
    assert finding.severity is Severity.WARNING
    assert finding.finding == (
        f"train-1-worker-0, train-1-worker-1, train-1-worker-2 and 1 more cannot be started: {reason}."
    )


@pytest.mark.parametrize(
    ("days", "severity", "words"),
    [
        (-1, Severity.ERROR, "expired on"),
        (3, Severity.WARNING, "expires on"),
        (90, Severity.NOTE, "expires on"),
    ],
)
def test_expiry_of_the_slurm_token_is_reported_in_advance(
    cast: Cast, days: int, severity: Severity, words: str
) -> None:
    expiry = timezone.now() + timedelta(days=days)
    pool = healthy_pool(cast, provider="slurm", slurm_token_sealed=seal(token_expiring_at(expiry)))
    finding = findings(pool)["Slurm token"]
    assert finding.severity is severity
    assert f"The token for slurmrestd {words} {expiry:%Y-%m-%d %H:%M} UTC." in finding.finding
    assert "berth pool edit train --slurm-token FILE" in finding.remedy


def test_slurm_token_without_an_expiry_is_not_reported(cast: Cast) -> None:
    assert findings(healthy_pool(cast, provider="slurm", slurm_token_sealed=seal(TOKEN))) == {}


def test_node_with_a_different_gpu_model_than_its_quota_group_is_reported(cast: Cast) -> None:
    pool = healthy_pool(cast)
    group = QuotaGroup.objects.create(name="shared")
    NodePool.objects.filter(pk=pool.pk).update(quota_group=group, gpu_model="A100")
    other = make.pool("hosts", gpu_model="", quota_group=group)
    make.node(other, gpu_model="H100")
    pool.refresh_from_db()
    for each in (pool, other):
        assert findings(each)["GPU models"].finding == (
            "The pools of quota group shared have different GPU models (hosts: H100, train: A100), "
            "but its quotas count all GPUs alike."
        )
