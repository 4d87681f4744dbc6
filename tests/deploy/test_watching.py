"""Claims about alert rules and dashboards: they load, and ask only for what Berth tells Prometheus."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.api.metrics.endpoint import Rows
from tests.deploy.expressions import asked
from tests.scraping import scraped

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "berth.rules.yaml"
BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
PROMTOOL = shutil.which("promtool")
PROMETHEUS_OWN = {"instance", "job"}
UNITS = {"short", "s", "percentunit", "bytes"}
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here")


@pytest.fixture
def told(db: None) -> dict[str, set[str]]:
    """By the name of each metric as it is scraped, the labels that it has."""
    types = {line.split()[2] for line in scraped().splitlines() if line.startswith("# TYPE ")}
    families = {
        family.name + ("_total" if family.type == "counter" else ""): set(family._labelnames)  # type: ignore[attr-defined]
        for family in Rows().collect()
    }
    assert set(families) == types
    return families


def board_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panels_of(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def expressions_of(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in panels_of(board) for target in panel.get("targets", ())]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def assert_is_told(expression: str, told: dict[str, set[str]]) -> None:
    found = asked(expression)
    assert found.metrics, expression
    for metric in found.metrics:
        assert metric in told, f"{metric} in {expression}"
        assert found.labels.get(metric, set()) <= told[metric] | PROMETHEUS_OWN, expression
    known = set.union(*(told[metric] for metric in found.metrics)) | PROMETHEUS_OWN
    assert found.grouping <= known, expression


def test_names_are_read_out_of_an_expression() -> None:
    found = asked('sum by (pool) (rate(a_total{x="b_c{",y!~"z|d"}[5m])) > on (pool) e_f and time() - 3 * inf')
    assert found.metrics == {"a_total", "e_f"}
    assert found.labels == {"a_total": {"x", "y"}}
    assert found.grouping == {"pool"}


def test_every_alert_asks_for_what_is_told_and_says_what_to_do(told: dict[str, set[str]]) -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert_is_told(rule["expr"], told)
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        found = asked(rule["expr"])
        assert all(used <= told[metric] for metric in found.metrics), rule["alert"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_asks_for_what_is_told(path: Path, told: dict[str, set[str]]) -> None:
    board = board_of(path)
    assert expressions_of(board)
    for expression in expressions_of(board):
        assert_is_told(expression, told)
    for panel in panels_of(board):
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            found = asked(target["expr"])
            assert all(shown <= told[metric] for metric in found.metrics), target
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asks = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
            assert asks
            assert asks[2] in told[asks[1]]
            assert variable["query"]["query"] == variable["definition"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_whole(path: Path) -> None:
    board = board_of(path)
    assert (board["uid"], board["id"]) == (path.stem, None)
    assert board["schemaVersion"] >= 39
    ids = [panel["id"] for panel in panels_of(board)]
    assert len(set(ids)) == len(ids)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps([expressions_of(board), board["panels"]])))
    assert used <= variables
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, f"{panel['title']} lies on another panel"
        assert at["x"] + at["w"] <= 24
        cells |= taken
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_dashboards_cover_cluster_waiting_fairness_pools_and_services() -> None:
    names = {path.stem for path in BOARDS}
    assert names == {"berth-cluster", "berth-queue", "berth-fairness", "berth-pools", "berth-services"}


def test_the_documentation_lists_exactly_what_is_told(told: dict[str, set[str]]) -> None:
    """With its labels, in the table of that chapter."""
    text = (ROOT / "docs" / "operations.md").read_text()
    chapter = text.split("### Metrics")[1].split("\n## ")[0]
    listed: dict[str, set[str]] = {}
    for line in chapter.splitlines():
        if not line.startswith("| `berth_"):
            continue
        names, labels = (cell.strip() for cell in line.strip("|").split("|")[:2])
        found = re.findall(r"`(\w+)`", names)
        sets = [{label.strip() for label in part.split(",") if label.strip()} for part in labels.split(";")]
        sets = sets if len(sets) == len(found) else sets * len(found)
        listed |= dict(zip(found, sets, strict=True))
    assert listed == told


@needs_promtool
def test_the_rules_load_and_fire_when_they_should() -> None:
    for command in (["check", "rules", RULES.name], ["test", "rules", "berth.rules.test.yaml"]):
        promtool(*command)


@needs_promtool
def test_prometheus_understands_every_panel(tmp_path: Path) -> None:
    """Each of them as a rule: that is how its own tool reads expressions without a server."""
    every = [expression for path in BOARDS for expression in expressions_of(board_of(path))]
    named = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(every)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": named}]}))
    promtool("check", "rules", str(file))


def promtool(*words: str) -> None:
    done = subprocess.run(
        [str(PROMTOOL), *words], cwd=RULES.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_scrapes_with_the_token_that_the_guide_names() -> None:
    example = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    (scrape,) = example["scrape_configs"]
    assert scrape["authorization"] == {"credentials_file": "/etc/prometheus/berth.token"}
    guide = (ROOT / "docs" / "monitoring.md").read_text()
    for name in ("BERTH_METRICS_TOKEN", "BERTH_METRICS_NETWORKS", "metrics_token"):
        assert name in guide
