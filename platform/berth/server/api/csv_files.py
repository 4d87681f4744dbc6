"""Stream rows as CSV files whose cells never start a formula."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from django.http import HttpRequest, StreamingHttpResponse
from rest_framework.request import Request

from berth.server.api.streaming import streamed

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # full width, too


def csv_file(
    request: HttpRequest | Request, name: str, heads: Sequence[str], rows: Iterable[Sequence[object]]
) -> StreamingHttpResponse:
    """`heads` tell the units; `rows` may read from the database as they go."""
    named = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    asked = request if isinstance(request, Request) else Request(request)
    return streamed(asked, csv_lines(heads, rows), "text/csv; charset=utf-8", **named)


def csv_lines(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(heads)
    for row in rows:
        yield writer.writerow([cell(value) for value in row])


def cell(value: object) -> str:
    """Whatever a workload is called: a spreadsheet shows it and computes nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list | tuple):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = str(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


class _Echo:
    """A file that hands every written line straight on."""

    def write(self, line: str) -> str:
        return line
