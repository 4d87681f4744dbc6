"""Tests for traces: spans, span attributes, and no cost without a collector."""

import json
import logging
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django_q.tasks import async_task

from berth.server.tracing import spans
from berth.server.wiring import load_wiring
from pools.providers.base import ProviderError, ProviderErrorKind
from projects.elastic.rounds import ServiceLoop
from projects.services.people import tokens
from scheduler.models import Cycle
from tests import factories as make
from tests.cast import make_cast
from tests.fakes.provider import FakeProvider
from tests.scheduler.stage import Stage
from tests.services.stage import make_stage
from tests.tracing.collector import Collector

ROOT = Path(__file__).resolve().parents[2]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def secret(db: None) -> str:
    return tokens.issue(actor=make_cast().dave, name="t", scopes=["read"], expires_at=None)[1]


def test_request_span_belongs_to_the_callers_trace_and_is_named_after_its_route(
    collector: Collector, secret: str
) -> None:
    path = "/api/v1/workloads/00000000-0000-4000-8000-000000000001?search=hidden"
    headers = {"Authorization": f"Bearer {secret}", "Traceparent": PARENT, "X-Request-Id": "mine-1"}
    assert Client().get(path, headers=headers).status_code == 422
    collector.wait_for("GET /api/v1/workloads/<uuid:workload_id>")
    [span] = collector.spans
    assert (span.trace, span.parent) == (PARENT[3:35], PARENT[36:52])
    assert span.attributes["http.response.status_code"] == 422
    assert span.attributes["berth.request_id"] == "mine-1"
    assert "hidden" not in str(span)
    assert secret not in str(span)
    assert not span.failed, "an error response does not make the span fail"


def test_scheduling_cycle_creates_one_trace_with_its_number(collector: Collector, stage: Stage) -> None:
    stage.submit("train", roles=[{"name": "worker", "gpu": 1}])
    stage.tick(2)
    collector.wait_for("scheduler tick", "commit", "record cycles")
    number = Cycle.objects.filter(bundles=1).get().pk
    [tick] = [span for span in collector.named("scheduler tick") if span.attributes["berth.bundles"] == 1]
    assert tick.attributes["berth.cycle"] == number
    assert tick.attributes["berth.epoch"] == stage.loop.context.held_lease.epoch
    steps = {span.name: span for span in collector.spans if span.parent == tick.id}
    assert set(steps) == {"observe", "decide", "commit", "dispatch"}
    assert any(number in span.attributes["berth.cycles"] for span in collector.named("record cycles"))


def a_job(number: int) -> int:
    assert number
    return number


def test_background_job_creates_a_span_that_records_a_failure(collector: Collector, db: None) -> None:
    async_task("tests.tracing.test_traces.a_job", 1, sync=True)
    with pytest.raises(AssertionError):
        async_task("tests.tracing.test_traces.a_job", 0, sync=True)
    name = "task tests.tracing.test_traces.a_job"
    collector.until(lambda: len(collector.named(name)) == 2)
    assert [span.failed for span in collector.named(name)] == [False, True]


def test_provider_calls_create_spans_with_request_and_error(
    collector: Collector, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make.pool("elastic")
    provider = load_wiring().provider_for(pool)
    provider.list_instances("elastic")
    trouble = ProviderError(ProviderErrorKind.CAPACITY, "sold out")

    def rejected(self: FakeProvider, pool: str, instance_ids: Any) -> None:
        raise trouble

    monkeypatch.setattr(FakeProvider, "terminate", rejected)
    with pytest.raises(ProviderError):
        provider.terminate("elastic", ["i-1", "i-2"])
    collector.wait_for("provider list_instances", "provider terminate")
    [terminate] = collector.named("provider terminate")
    assert terminate.failed
    assert terminate.attributes["berth.pool"] == "elastic"
    assert terminate.attributes["berth.provider"] == "fake"
    assert terminate.attributes["berth.nodes.requested"] == 2


def test_service_controller_pass_creates_a_span(collector: Collector, transactional_db: None) -> None:
    played = make_stage()
    service = played.submit()
    rounds = ServiceLoop(
        clock=played.stage.clock, build_reconcile_context=lambda fence: played.reconcile_context
    )
    rounds._run_pass(service)
    collector.wait_for("service pass")
    [span] = collector.named("service pass")
    assert span.attributes["berth.service"] == service.workload.handle
    assert not span.failed


def test_log_lines_contain_the_trace_id(collector: Collector) -> None:
    handler = logging.StreamHandler(StringIO())
    handler.setFormatter(_formatter())
    with spans.span("something"):
        entry = json.loads(
            handler.format(logging.makeLogRecord({"name": "x", "levelno": 20, "msg": "hello"}))
        )
    collector.wait_for("something")
    [span] = collector.spans
    assert (entry["trace_id"], entry["span_id"]) == (span.trace, span.id)


def _formatter() -> logging.Formatter:
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=settings.SHARED, processors=[structlog.processors.JSONRenderer()]
    )


SET_UP = """
import sys, django
django.setup()
from django.test import Client
from berth.server.tracing import spans
"""
USE = """
Client().get("/healthz")
Client().get("/api/v1/whoami")
with spans.span("a", b=1) as span:
    span.set_attributes(c=2)
assert span is spans.NO_SPAN and spans.current_ids() == {}
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


@pytest.mark.heavy
def test_opentelemetry_is_imported_only_if_enabled(
    child_env: dict[str, str],
) -> None:
    # It is not imported without an endpoint or with a disabled SDK. Spans for an unreachable endpoint are
    # lost.
    disabled = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}
    unreachable = {
        "OTEL_SDK_DISABLED": "false",
        "OTEL_BSP_EXPORT_TIMEOUT": "200",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    record = USE.replace("assert span is", "assert span is not").replace(" and spans.current_ids() == {}", "")
    again = "import os; os.environ.update({!r}); spans._is_set_up = False\n"
    program = f"{SET_UP}{USE}{again.format(disabled)}{USE}{again.format(unreachable)}{record}"
    env = {key: value for key, value in child_env.items() if not key.startswith("OTEL_")}
    process = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    without, with_disabled_sdk, with_unreachable_endpoint = process.stdout.splitlines()
    assert [without, with_disabled_sdk] == ["[]", "[]"]
    assert "opentelemetry.sdk.trace" in with_unreachable_endpoint
