"""Tests for the preview of a pool on Slurm."""

from pathlib import Path

import pytest

from pools.providers.base import ProviderError, Shape
from pools.providers.preview import Severity
from tests.fakes.slurm import FakeSlurm
from tests.pools.slurm.stage import make_slurm, order, slurm_provider

SHAPE = Shape(4000, 8192, gpus=2)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return make_slurm(tmp_path)


def test_preview_shows_the_machines_of_the_partition(slurm: FakeSlurm) -> None:
    slurm.set(broken={"n3": {"StateLong": "drained", "Reason": "memory errors"}})
    provider = slurm_provider(slurm)
    provider.provision(order(count=1))
    preview = provider.preview("small", SHAPE)
    assert (
        preview.source
        == "slurm-wlm 22.05.8 on the machine on which Berth runs, partition gpu (time limit 24h)"
    )
    assert preview.findings == ()
    first, second, _, last = preview.nodes
    assert (first.name, first.details, first.total.gpu_model) == ("n0", "allocated, rack0", "l40s")
    assert (first.free.gpus, second.free.gpus) == (0, 2)
    assert last.obstacle == "Slurm reports drained: memory errors"
    assert len(preview.usable_nodes) == 3


def test_error_for_an_unknown_partition_suggests_the_nearest_name_and_lists_all_partitions(
    slurm: FakeSlurm,
) -> None:
    [finding] = slurm_provider(slurm, partition="gpuu").preview("small", SHAPE).findings
    assert finding.severity is Severity.ERROR
    assert finding.message == "The cluster has no partition gpuu that this user may see."
    assert finding.remedy == "Did you mean `gpu`? Allowed: gpu, short, debug."


def test_rejected_account_is_reported_with_slurms_message(slurm: FakeSlurm) -> None:
    slurm.set(rejection="Invalid account or account/partition combination specified")
    [finding] = slurm_provider(slurm, account="nope").preview("small", SHAPE).findings
    assert "Invalid account or account/partition combination specified" in finding.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_limit": "48h"}, "The time limit of 48h exceeds the partition's 24h"),
        ({"partition": "short"}, "The allocation of 5m leaves no time for work"),
        ({"partition": "debug"}, "Partition debug is down."),
    ],
)
def test_slurm_limits_that_prevent_jobs_from_running_are_reported_as_errors(
    slurm: FakeSlurm, settings: dict[str, str], message: str
) -> None:
    finding = slurm_provider(slurm, **settings).preview("small", SHAPE).findings[0]
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith(message)


def test_slurm_preview_excludes_machines_that_are_too_small(slurm: FakeSlurm) -> None:
    preview = slurm_provider(slurm).preview("small", Shape(64_000, 8192, gpus=8))
    assert preview.nodes[0].obstacle == "too small: 2 of 8 GPUs, 8 of 64 cores"
    assert [finding.message for finding in preview.findings] == [
        "No machine in partition gpu can run a node of the pool."
    ]


def test_preview_of_an_unreachable_cluster_reports_an_error(slurm: FakeSlurm) -> None:
    slurm.set(down=True)
    with pytest.raises(ProviderError, match="Unable to contact slurm controller"):
        slurm_provider(slurm).preview("small", SHAPE)
