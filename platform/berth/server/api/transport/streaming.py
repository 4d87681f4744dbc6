"""Stream long responses and CSV files under WSGI and ASGI."""

import csv
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from tempfile import SpooledTemporaryFile

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from rest_framework.request import Request

PART_BYTES = 256 * 1024
MEMORY_BYTES = 1024 * 1024  # larger CSV files are buffered in a temporary file
# Initial characters that make a spreadsheet evaluate a cell, including full-width forms.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def stream_bytes(
    request: HttpRequest | Request, parts: Iterator[bytes], content_type: str, **headers: str
) -> StreamingHttpResponse:
    """Stream a response whose parts take time to read.

    Reading a part must not use the database. An error breaks the connection, so that the client does not
    mistake the response for a complete one.
    """
    plain = request._request if isinstance(request, Request) else request
    body = _async_parts(parts) if isinstance(plain, ASGIRequest) else parts
    headers["X-Accel-Buffering"] = "no"
    return StreamingHttpResponse(body, content_type=content_type, headers=headers)


def stream_download(
    request: Request, parts: Iterator[bytes], name: str, size: int, content_type: str
) -> StreamingHttpResponse:
    """Stream `size` bytes as a download with the given file name."""
    headers = {
        "Content-Disposition": str(content_disposition_header(True, name)), "Content-Length": str(size),
    }  # fmt: skip
    return stream_bytes(request, parts, content_type, **headers)


def csv_response(
    request: HttpRequest | Request, name: str, header: Sequence[str], rows: Iterable[Sequence[object]]
) -> StreamingHttpResponse:
    """Send the rows as the file `name`.csv.

    Rows may be read from the database while they are sent. Under ASGI, however, all rows are read first, so
    that a slow client does not hold a database connection.
    """
    plain = request._request if isinstance(request, Request) else request
    lines = csv_lines(header, rows)
    body = _spooled_lines(lines) if isinstance(plain, ASGIRequest) else lines
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(body, content_type="text/csv; charset=utf-8", headers=headers)


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(header)
    for row in rows:
        yield writer.writerow([format_cell(value) for value in row])


def format_cell(value: object) -> str:
    """Format a value so that a spreadsheet displays it and never evaluates it."""
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
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


class _Echo:
    """File-like object whose `write` returns the line, so that `csv.writer` also returns it."""

    def write(self, line: str) -> str:
        return line


async def _async_parts(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the response's parts, without holding a database connection.

    Each part may be read in a different thread.
    """
    await sync_to_async(_release_connection)()
    while part := await sync_to_async(_next_part, thread_sensitive=False)(parts):
        yield part


def _next_part(parts: Iterator[bytes]) -> bytes:
    """Return the next part, or several small ones joined, because each call costs a thread switch."""
    joined, size = [], 0
    for part in parts:
        joined.append(part)
        size += len(part)
        if size >= PART_BYTES:
            break
    return b"".join(joined)


async def _spooled_lines(lines: Iterable[str]) -> AsyncIterator[bytes]:
    """Read all lines in the thread that owns the database connection, then yield them in chunks."""
    file = await sync_to_async(_spool)(lines)
    try:
        while part := await sync_to_async(file.read, thread_sensitive=False)(PART_BYTES):
            yield part
    finally:
        file.close()


def _spool(lines: Iterable[str]) -> "SpooledTemporaryFile[bytes]":
    file = SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (closed by the caller)
    try:
        file.writelines(line.encode() for line in lines)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    finally:
        _release_connection()
    return file


def _release_connection() -> None:
    if not connection.in_atomic_block:
        connection.close()
