"""Tests that the load benchmarks run at a tiny size, with real web and scheduler processes."""

from pathlib import Path

import pytest

from benchmarks import kueue, load
from projects.models import Event, QuotaChange, Workload


@pytest.fixture
def settings_of_processes(database_url: str, tmp_path: Path) -> dict[str, str]:
    return {"DATABASE_URL": database_url, "BERTH_HOME": str(tmp_path)}


@pytest.mark.heavy
def test_kueue_benchmark_completes_all_workloads_submitted_over_rest(
    settings_of_processes: dict[str, str],
) -> None:
    row = kueue.run(0.003, settings_of_processes)
    assert set(Workload.objects.values_list("phase", flat=True)) == {"completed"}
    assert Event.objects.filter(kind="submitted", actor="bench").count() == row["workloads"] == 90
    assert 0 < row["quota_used"] <= 1
    assert set(row["admission_s"]) == {"small", "medium", "large"}
    assert {"web", "loop", "database", "generator"} <= row["cpu_s"].keys()
    assert row["loop"]["statements"] > 0


@pytest.mark.heavy
def test_benchmark_measures_rounds_with_pending_workloads(settings_of_processes: dict[str, str]) -> None:
    row = load.pending(100, settings_of_processes)
    assert Workload.objects.filter(phase="pending").count() == 101
    assert row["one_change"]["longest_round_cpu_ms"] > 0


@pytest.mark.heavy
def test_benchmark_measures_starts_after_a_burst_of_completions(
    settings_of_processes: dict[str, str],
) -> None:
    row = load.ends(30, settings_of_processes)
    assert Workload.objects.filter(phase="completed").count() == 30
    assert 0 < row["completed_s"] <= row["successors_run_s"]


@pytest.mark.heavy
def test_benchmark_edits_quotas_while_workloads_arrive(settings_of_processes: dict[str, str]) -> None:
    row = load.edits(5, settings_of_processes)
    assert QuotaChange.objects.count() == 5
    assert row["with_edits"]["workloads_s"] > 0
