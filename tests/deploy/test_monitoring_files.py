"""Tests that alert rules and dashboards load and use only metrics that Berth exports."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.api.metrics.endpoint import DatabaseCollector
from tests.deploy.expressions import names_in
from tests.support.scraping import scraped

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "berth.rules.yaml"
BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
PROMTOOL = shutil.which("promtool")
PROMETHEUS_OWN = {"instance", "job"}
UNITS = {"short", "s", "percentunit", "bytes"}
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


@pytest.fixture
def exported_metrics(db: None) -> dict[str, set[str]]:
    types = {line.split()[2] for line in scraped().splitlines() if line.startswith("# TYPE ")}
    families = {
        family.name + ("_total" if family.type == "counter" else ""): set(family._labelnames)  # type: ignore[attr-defined]
        for family in DatabaseCollector().collect()
    }
    assert set(families) == types
    return families


def read_board(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


def board_panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def board_expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board_panels(board) for target in panel.get("targets", ())]


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def assert_is_exported(expression: str, exported_metrics: dict[str, set[str]]) -> None:
    used = names_in(expression)
    assert used.metrics, expression
    for metric in used.metrics:
        assert metric in exported_metrics, f"{metric} in {expression}"
        assert used.labels.get(metric, set()) <= exported_metrics[metric] | PROMETHEUS_OWN, expression
    labels = set.union(*(exported_metrics[metric] for metric in used.metrics)) | PROMETHEUS_OWN
    assert used.grouping <= labels, expression


def test_metric_and_label_names_are_extracted_from_queries() -> None:
    used = names_in(
        'sum by (pool) (rate(a_total{x="b_c{",y!~"z|d"}[5m])) > on (pool) e_f and time() - 3 * inf'
    )
    assert used.metrics == {"a_total", "e_f"}
    assert used.labels == {"a_total": {"x", "y"}}
    assert used.grouping == {"pool"}


def test_every_alert_uses_only_exported_metrics_and_has_a_description(
    exported_metrics: dict[str, set[str]],
) -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert_is_exported(rule["expr"], exported_metrics)
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        names = names_in(rule["expr"])
        assert all(used <= exported_metrics[metric] for metric in names.metrics), rule["alert"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_uses_only_exported_metrics(path: Path, exported_metrics: dict[str, set[str]]) -> None:
    board = read_board(path)
    assert board_expressions(board)
    for expression in board_expressions(board):
        assert_is_exported(expression, exported_metrics)
    for panel in board_panels(board):
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            names = names_in(target["expr"])
            assert all(shown <= exported_metrics[metric] for metric in names.metrics), target
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asks = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
            assert asks
            assert asks[2] in exported_metrics[asks[1]]
            assert variable["query"]["query"] == variable["definition"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_dashboard_definition_is_consistent(path: Path) -> None:
    board = read_board(path)
    assert (board["uid"], board["id"]) == (path.stem, None)
    assert board["schemaVersion"] >= 39
    ids = [panel["id"] for panel in board_panels(board)]
    assert len(set(ids)) == len(ids)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps([board_expressions(board), board["panels"]])))
    assert used <= variables
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        panel_cells = {
            (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
        }
        assert not panel_cells & cells, f"{panel['title']} overlaps another panel"
        assert at["x"] + at["w"] <= 24
        cells |= panel_cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_dashboards_cover_cluster_pools_services_queue_and_fairness() -> None:
    names = {path.stem for path in BOARDS}
    assert names == {"berth-cluster", "berth-queue", "berth-fairness", "berth-pools", "berth-services"}


def test_documentation_lists_exactly_the_exported_metrics(exported_metrics: dict[str, set[str]]) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    chapter = text.split("### Metrics")[1].split("\n## ")[0]
    listed: dict[str, set[str]] = {}
    for line in chapter.splitlines():
        if not line.startswith("| `berth_"):
            continue
        names, labels = (cell.strip() for cell in line.strip("|").split("|")[:2])
        metrics = re.findall(r"`(\w+)`", names)
        sets = [{label.strip() for label in part.split(",") if label.strip()} for part in labels.split(";")]
        sets = sets if len(sets) == len(metrics) else sets * len(metrics)
        listed |= dict(zip(metrics, sets, strict=True))
    assert listed == exported_metrics


@needs_promtool
def test_alert_rules_load_and_fire() -> None:
    for command in (["check", "rules", RULES.name], ["test", "rules", "berth.rules.test.yaml"]):
        promtool(*command)


@needs_promtool
def test_prometheus_parses_the_queries_of_every_panel(tmp_path: Path) -> None:
    # promtool checks expressions only in rules, so each panel becomes a rule.
    every = [expression for path in BOARDS for expression in board_expressions(read_board(path))]
    named = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(every)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": named}]}))
    promtool("check", "rules", str(file))


def promtool(*words: str) -> None:
    done = subprocess.run(
        [str(PROMTOOL), *words], cwd=RULES.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_example_configuration_uses_the_token_from_the_guide() -> None:
    example = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    (scrape,) = example["scrape_configs"]
    assert scrape["authorization"] == {"credentials_file": "/etc/prometheus/berth.token"}
    guide = (ROOT / "docs" / "monitoring.md").read_text()
    for name in ("BERTH_METRICS_TOKEN", "BERTH_METRICS_NETWORKS", "metrics_token"):
        assert name in guide
