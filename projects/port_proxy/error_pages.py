"""Minimal error pages for port hosts."""

from dataclasses import dataclass
from html import escape

from projects.port_proxy.requests import Send

PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto;"
    "padding:0 1rem;color-scheme:light dark}}</style><h1>{title}</h1><p>{text}</p>"
)
HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"), (b"x-content-type-options", b"nosniff"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ErrorPage:
    status: int
    title: str
    text: str


LINK_NEEDED = ErrorPage(
    403, "Open this port from Berth",
    "A link works once, within a minute. Access ends with the run, when you lose permission to control "
    "the workload, or after twelve hours. Choose Open on the workload's page, or run `berth open`.",
)  # fmt: skip
NOT_LISTENING = ErrorPage(
    502, "The port is not responding",
    "The workload is not running, or its program does not listen on this port yet. Check its log, or try "
    "again in a moment.",
)  # fmt: skip
CROSS_SITE = ErrorPage(403, "Cross-site request rejected", "Another site sent this request on your behalf.")
TOO_MANY_REQUESTS = ErrorPage(
    503, "Too many requests", "This port has reached its limit of concurrent requests. Try again in a moment."
)
NO_DATABASE = ErrorPage(
    503,
    "Berth's database cannot be reached",
    "Ports can be opened again once the database is back. Try again in a moment.",
)
NOT_FOUND = ErrorPage(404, "Not found", "There is no page at this address.")


async def send_page(send: Send, rejection: ErrorPage) -> None:
    body = PAGE.format(title=escape(rejection.title), text=escape(rejection.text)).encode()
    headers = [*HEADERS, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": rejection.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
