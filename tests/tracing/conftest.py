"""Fixture that collects the traces of a test."""

from collections.abc import Iterator

import pytest

from berth.server.tracing import spans
from tests.cast import make_cast
from tests.scheduler.stage import Stage
from tests.tracing.collector import Collector, collecting


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        monkeypatch.setattr(spans, "_is_set_up", False)
        monkeypatch.setattr(spans, "_tracer", None)
        yield running
        if spans._tracer is not None:
            spans._tracer.span_processor.shutdown()


@pytest.fixture
def stage(transactional_db: None) -> Stage:
    made = Stage(make_cast())
    made.node(0)
    made.quota(made.cast.research, 4)
    made.quota(made.cast.vision, 4)
    return made
