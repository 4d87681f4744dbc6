"""Tests that the load benchmarks run at a tiny size, with real web and scheduler processes."""

from pathlib import Path

from benchmarks import kueue
from projects.models import Event, Workload


def test_kueues_workloads_are_submitted_over_rest_and_all_complete(database_url: str, tmp_path: Path) -> None:
    row = kueue.run(0.003, {"DATABASE_URL": database_url, "BERTH_HOME": str(tmp_path)})
    assert set(Workload.objects.values_list("phase", flat=True)) == {"completed"}
    assert Event.objects.filter(kind="submitted", actor="bench").count() == row["workloads"] == 90
    assert 0 < row["quota_used"] <= 1
    assert set(row["admission_s"]) == {"small", "medium", "large"}
    assert {"web", "loop", "database", "generator"} <= row["cpu_s"].keys()
    assert row["loop"]["statements"] > 0
