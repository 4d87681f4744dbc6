"""Short error pages on port hosts."""

from dataclasses import dataclass
from html import escape

from projects.visits.requests import Send

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
class Refusal:
    status: int
    title: str
    text: str


AGAIN = Refusal(
    403, "Open it once more from Berth",
    "A link opens a port once, within a minute, and a visit ends with the run, with your right to act on "
    "the workload, or after half a day. Choose Open on the workload's page, or run berth open.",
)  # fmt: skip
DARK = Refusal(
    502, "Nothing answers here now",
    "The workload does not run at the moment, or what runs in it does not listen at this port yet. Its log "
    "says more; try again in a moment.",
)  # fmt: skip
STRANGER = Refusal(403, "Not from here", "Another site asked for this in your name, so it was refused.")
CROWDED = Refusal(503, "Too much at once", "This port has as many requests open as it may have.")
WRONG = Refusal(404, "Nothing here", "There is nothing at this address.")


async def page(send: Send, refusal: Refusal) -> None:
    body = PAGE.format(title=escape(refusal.title), text=escape(refusal.text)).encode()
    headers = [*HEADERS, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
