"""The queue of a pool."""

from datetime import datetime
from typing import Any

from berth.client.answers import Answer
from berth.client.transport import Transport

PAGE = 500


class Waiter(Answer):
    """`position` is among everybody's work; None: no cycle has looked at it yet."""

    workload: str
    name: str
    project: str
    position: int | None = None
    department: str = ""
    priority: int = 0
    gpus: float = 0
    submitted_at: datetime | None = None
    reason: str = ""
    message: str = ""
    key: list[str] = []
    expected_start: datetime | None = None


class Line(Answer):
    """`workloads` and `gpus` count everybody's work, `items` are those that you see, first in line first."""

    workloads: int
    gpus: float
    items: list[Waiter]


class Lines:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def read(self, pool: str, *, limit: int | None = None) -> Line:
        path, items, cursor = f"node-pools/{pool}/queue", list[Any](), None
        while True:
            most = PAGE if limit is None else min(PAGE, limit - len(items))
            told: dict[str, Any] = self._transport.get(path, {"limit": most, "cursor": cursor})
            items += told["items"]
            cursor = told.pop("next")
            if cursor is None or (limit is not None and len(items) >= limit):
                return Line.model_validate({**told, "items": items})
