"""Tests that every benchmark runs at a tiny size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import ALL
from benchmarks.setup.own_database import TEMPLATE

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{n},64000,262144,4,T4\n" for n in range(3))
POD_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
EXPECTED_OUTPUT = {  # text that a successful run prints
    "decide": "20 queues, 200 jobs, 50 nodes", "ticks": "nothing changed", "turns": "2 queues of 16",
    "tenants": "fair, the first 200 jobs", "openb": "fragmentation", "rest_submit": "database CPU ms",
    "pages": "/node-pools/train", "dry_run": "would never start", "explaining": "from_what_it_wrote",
    "smallest_change": "20 kinds wait", "kueue": "statements_each", "load": "per_second",
    "pools_at_size": "leaks 0", "elastic_service": "drawn: ", "latency": "of 3 submissions took more than",
    "whole_system": "submit to running", "arrays": "tick_cpu_ms_8_ended",
    "kubernetes": "in_memory_cpu_ms",
}  # fmt: skip

# Benchmarks that take long even at a small size.
LONG = {
    "whole_system", "load", "explaining", "dry_run", "arrays", "rest_submit", "kueue",
    "elastic_service", "latency", "pools_at_size", "kubernetes", "pages", "ticks",
}  # fmt: skip


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Write small files in the formats of the public traces, because the traces are not in the repository."""
    for name in ("openb", "philly"):
        (tmp_path / name).mkdir()
    (tmp_path / "openb/openb_node_list_gpu_node.csv").write_text(NODES)
    pods = (f"p{n},4000,16384,1,{500 if n % 3 else 1000},{'T4' if n % 5 == 0 else ''}\n" for n in range(12))
    (tmp_path / "openb/openb_pod_list_default.csv").write_text(f"{POD_HEAD},gpu_spec\n{''.join(pods)}")
    (tmp_path / "philly/helios_philly_vc_nodes.csv").write_text("vc,node_num\nred,8\nblue,8\n")
    jobs = (
        f"2017-10-09 0{n % 8}:0{n % 10}:00,{600 + n},{1 + n % 8},0,{'red' if n % 2 else 'blue'}\n"
        for n in range(40)
    )
    head = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    (tmp_path / "philly/philly.csv").write_text(head + "".join(jobs))
    return tmp_path


def run(name: str, traces: Path, *options: str, template: Path | None = None) -> str:
    env = {**os.environ, "BERTH_TRACES": str(traces), "BERTH_BENCH_DATA": str(traces)}
    env = {key: value for key, value in env.items() if key not in ("DATABASE_URL", "BERTH_HOME")}
    if template:
        env[TEMPLATE] = str(template)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options], cwd=ROOT, env=env, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.heavy if name in LONG else []) for name in ALL]
)
def test_every_benchmark_runs_at_a_small_size(name: str, traces: Path, migrated_home: Path | None) -> None:
    before = {path: path.stat().st_mtime_ns for path in RESULTS.glob("*")}
    assert EXPECTED_OUTPUT[name] in run(name, traces, "--tiny", template=migrated_home)
    assert {path: path.stat().st_mtime_ns for path in RESULTS.glob("*")} == before, (
        "a tiny run stores no results"
    )


def test_every_benchmark_is_registered() -> None:
    files = (ROOT / "benchmarks").glob("*.py")
    runnable = {path.stem for path in files if '__name__ == "__main__"' in path.read_text()}
    assert runnable - {"__main__"} == set(ALL)


def test_openb_pods_without_gpu_models_are_placed(traces: Path) -> None:
    pods = "".join(f"p{n},4000,16384,1,1000\n" for n in range(6))
    (traces / "openb/openb_pod_list_bare.csv").write_text(f"{POD_HEAD}\n{pods}")
    assert "bare" in run("openb", traces, "--seeds", "42", "--lists", "bare")
