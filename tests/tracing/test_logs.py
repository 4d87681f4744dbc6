"""Tests that every log line is a JSON event with the ID of its request, cycle or job."""

import asyncio
import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest
import structlog
from django.conf import settings
from django.test import Client
from django_q.tasks import async_task

from berth.server.web.live.request_ids import with_request_id
from scheduler.models import Cycle
from tests.scheduler.stage import Stage


class LogLines:
    """The JSON lines that the handler of the root logger would write."""

    def __init__(self) -> None:
        self.stream = StringIO()
        self.handler = logging.StreamHandler(self.stream)
        render: list[structlog.typing.Processor] = [
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
        self.handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(foreign_pre_chain=settings.SHARED, processors=render)
        )

    def entry(self, event: str) -> dict[str, object]:
        events = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return next(line for line in events if event in line["event"])


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    written = LogLines()
    root = logging.getLogger()
    root.addHandler(written.handler)
    yield written
    root.removeHandler(written.handler)


def test_log_of_a_request_contains_route_and_request_id(
    db: None, log_lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "berth.requests")
    Client().get("/api/v1/workloads?search=hidden", headers={"X-Request-Id": "mine-1"})
    entry = log_lines.entry("request")
    assert (entry["request_id"], entry["route"], entry["status"]) == ("mine-1", "/api/v1/workloads", 401)
    assert (entry["method"], entry["level"], entry["logger"]) == ("GET", "info", "berth.requests")
    assert "hidden" not in log_lines.stream.getvalue()


def test_log_of_a_cycle_contains_its_number(
    stage: Stage, log_lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(order: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(stage.runtime, "start", broken)
    stage.submit("train", roles=[{"name": "worker", "gpu": 1}])
    stage.tick()
    entry = log_lines.entry("could not be started: no space left")
    assert entry["cycle"] == Cycle.objects.filter(bundles=1).get().pk
    assert entry["level"] == "warning"


def a_job() -> None:
    logging.getLogger("a.job").warning("half way")


def test_log_of_a_background_job_contains_its_name_and_id(db: None, log_lines: LogLines) -> None:
    number = async_task("tests.tracing.test_logs.a_job", sync=True)
    entry = log_lines.entry("half way")
    assert (entry["task"], entry["task_id"]) == ("tests.tracing.test_logs.a_job", number)
    logging.getLogger("a.job").warning("afterwards")
    assert "task" not in log_lines.entry("afterwards")


async def test_log_lines_of_a_websocket_share_one_request_id() -> None:
    heard = []

    async def app(scope: object, receive: object, send: object) -> None:
        heard.append(structlog.contextvars.get_contextvars()["request_id"])
        await asyncio.sleep(0)
        heard.append(structlog.contextvars.get_contextvars()["request_id"])

    await asyncio.gather(*(with_request_id(app)({}, None, None) for _ in range(2)))
    assert {heard.count(name) for name in heard} == {2}
    assert len(set(heard)) == 2
    assert "request_id" not in structlog.contextvars.get_contextvars()


def test_log_record_with_line_breaks_or_an_exception_is_one_line(log_lines: LogLines) -> None:
    try:
        raise ValueError("<b>two\nlines</b>")
    except ValueError:
        logging.getLogger("x").exception("it broke: %s", "a\nb\x1b[31m")
    assert len(log_lines.stream.getvalue().splitlines()) == 1
    assert "two\nlines" in str(log_lines.entry("it broke")["exception"])
