"""Tests for alert rules and dashboard panels with a real Prometheus that scrapes a real Berth."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connection

from tests.browser.data.scene import busy
from tests.browser.driver.site import serving
from tests.deploy.expressions import names_in
from tests.deploy.test_monitoring_files import BOARDS, RULES, board_expressions, read_board
from tests.harness.prepared import url_of_database

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
    pytest.mark.timeout(300),
]
EMPTY_DASHBOARDS = {"berth-services"}  # the scene has no service
EMPTY_PANELS = {"berth_cycle_seconds", "berth_pool_provision_calls_total", "berth_wait_seconds"}


@pytest.fixture
def prometheus(transactional_db: None, postgres: str, tmp_path: Path) -> Iterator[str]:
    busy()
    url = url_of_database(postgres, str(connection.settings_dict["NAME"]))
    with serving(url, tmp_path) as berth:
        rules = tmp_path / "rules.yaml"
        rules.write_text(RULES.read_text().replace("interval: 30s", "interval: 1s"))
        scrape = {"job_name": "berth", "static_configs": [{"targets": [berth.removeprefix("http://")]}],
                  "authorization": {"credentials_file": str(tmp_path / "metrics_token")}}  # fmt: skip
        settings = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)], "scrape_configs": [scrape]}  # fmt: skip
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen([
            str(PROMETHEUS), f"--config.file={tmp_path}/prometheus.yaml", "--log.level=error",
            f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}",
        ])  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def query_prometheus(prometheus: str, path: str, **query: str) -> Any:
    try:
        with urllib.request.urlopen(f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def test_every_dashboard_panel_has_data_and_every_alert_rule_loads(prometheus: str) -> None:
    deadline = time.monotonic() + 120
    while not (query_prometheus(prometheus, "query", query="berth_build_info") or {}).get("result"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(3)  # a rate needs two scrapes
    loaded = [rule for group in query_prometheus(prometheus, "rules")["groups"] for rule in group["rules"]]
    assert len(loaded) == len(yaml.safe_load(RULES.read_text())["groups"][0]["rules"])
    assert {rule["health"] for rule in loaded} == {"ok"}
    empty: set[str] = set()
    for path in BOARDS:
        for expression in board_expressions(read_board(path)):
            plain = expression
            for name in ("pool", "department", "project", "service"):
                plain = plain.replace(f"${name}", ".*")
            data = query_prometheus(prometheus, "query", query=plain)
            assert data is not None, plain
            if not data["result"] and path.stem not in EMPTY_DASHBOARDS:
                empty |= names_in(expression).metrics
    assert empty <= EMPTY_PANELS
