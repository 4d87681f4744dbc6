"""Load a trace by name or from a file."""

import csv
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from berth.core.problems import Problem, format_value
from scheduler.simulator.replay import openb, philly
from scheduler.simulator.replay.rows import Row
from scheduler.simulator.replay.trace import Trace, snapshot_to_trace
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.load import load

PUBLIC_SOURCES = {
    "openb": "https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2023)",
    "philly": "https://github.com/msr-fiddle/philly-traces, as CSV: timestamp, duration, num_gpus, cluster",
}
OPENB = ("openb/openb_pod_list_default.csv", "openb/openb_node_list_gpu_node.csv")
PHILLY = ("philly/philly.csv", "philly/helios_philly_vc_nodes.csv")
NODE_FILE_PATTERNS = {"philly": "*vc_nodes*.csv", "openb": "*node_list*.csv"}


class TraceNotFound(ScenarioError):
    """Raised for a trace whose files are missing."""

    def __init__(self, name: str, missing: Path) -> None:
        super().__init__(
            [
                Problem(
                    "",
                    f"the trace {name} is missing",
                    format_value(str(missing)),
                    f"from {PUBLIC_SOURCES[name]}",
                )
            ]
        )


def load_trace(source: str, data: Path) -> Trace:
    """Load `openb`, `philly`, a CSV file in the format of either trace, or a scenario file."""
    if source == "openb":
        pods, nodes = _existing_files(source, data, OPENB)
        return openb.read_trace(_read_rows(pods)[1], _read_rows(nodes)[1])
    if source == "philly":
        jobs, nodes = _existing_files(source, data, PHILLY)
        return philly.read_trace(_read_rows(jobs)[1], philly.read_cluster_sizes(_read_rows(nodes)[1]))
    path = Path(source)
    if path.suffix.lower() != ".csv":
        return snapshot_to_trace(path.stem, load(path).snapshot)
    head, rows = _read_rows(path)
    if head >= philly.HEADER:
        return replace(
            philly.read_trace(rows, philly.read_cluster_sizes(_read_node_file(path, "philly")), window=None),
            name=path.stem,
        )
    if head >= openb.HEADER:
        return replace(openb.read_trace(rows, _read_node_file(path, "openb")), name=path.stem)
    headers = " or ".join(",".join(sorted(header)) for header in (philly.HEADER, openb.HEADER))
    raise ScenarioError(
        [
            Problem(
                "line 1",
                "is not the header of a supported trace",
                format_value(",".join(sorted(head))),
                headers,
            )
        ]
    )


def shrink_trace(trace: Trace, nodes: int | None, jobs: int | None, seed: int) -> Trace:
    """Reduce a trace to `nodes` randomly sampled nodes and the first `jobs` jobs."""
    cluster = trace.cluster
    if nodes is not None and nodes < len(cluster.nodes):
        shuffled = sorted(cluster.nodes, key=lambda node: sha256(f"{seed} {node.name}".encode()).digest())
        names = {node.name for node in shuffled[:nodes]}
        cluster = replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name in names))
    return replace(trace, cluster=cluster, arrivals=trace.arrivals[:jobs])


def _existing_files(name: str, data: Path, files: Sequence[str]) -> list[Path]:
    paths = [data / file for file in files]
    for path in paths:
        if not path.is_file():
            raise TraceNotFound(name, path)
    return paths


def _read_node_file(path: Path, kind: str) -> list[Row]:
    matches = sorted(path.parent.glob(NODE_FILE_PATTERNS[kind]))
    if not matches:
        pattern = str(path.parent / NODE_FILE_PATTERNS[kind])
        raise ScenarioError([Problem("", "has no node file in the same directory", format_value(pattern))])
    return _read_rows(matches[0])[1]


def _read_rows(path: Path) -> tuple[AbstractSet[str], list[Row]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows: list[Row] = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise ScenarioError([Problem("", f"cannot be read: {why}", format_value(str(path)))]) from None
    return set(reader.fieldnames or ()), rows
