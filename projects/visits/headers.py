"""Filter headers between browsers and pods.

Berth's own cookies never reach a pod, and no pod can set a cookie, or clear one, beyond its own host.
"""

from collections.abc import Collection, Iterable

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
# What only the proxy itself may say, or what its own connection to the pod makes anew.
OURS_TO_SAY = frozenset({
    b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-port",
    b"x-real-ip", b"expect",
})  # fmt: skip
# Of a whole site, or of other hosts: not a pod's to say.
NOT_A_PODS = frozenset({
    b"alt-svc", b"clear-site-data", b"expect-ct", b"nel", b"public-key-pins", b"report-to",
    b"reporting-endpoints", b"strict-transport-security",
})  # fmt: skip
HANDSHAKE = frozenset({
    b"host", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol",
    b"sec-websocket-extensions",
})  # fmt: skip
NOT_FRAMED_ELSEWHERE = (b"content-security-policy", b"frame-ancestors 'self'")


def to_pod(given: Iterable[tuple[bytes, bytes]], *, own_cookies: Collection[str], secret: str,
           scheme: str) -> Headers:  # fmt: skip
    """A page's own Authorization goes through; where it brings none, the pod hears the secret."""
    given = list(given)
    dropped = HOP_BY_HOP | OURS_TO_SAY | _named_by_connection(given)
    kept: Headers = []
    for name, value in given:
        lower = name.lower()
        if lower == b"cookie":
            if rest := _without(value, own_cookies):
                kept.append((lower, rest))
        elif lower not in dropped:
            kept.append((lower, value))
    if not any(name == b"authorization" for name, _ in kept):
        kept.append((b"authorization", b"Bearer " + secret.encode()))
    host = next((value for name, value in kept if name == b"host"), b"")
    return [*kept, (b"x-forwarded-proto", scheme.encode()), (b"x-forwarded-host", host)]


def to_pod_by_socket(headers: Headers) -> list[tuple[str, str]]:
    """Those of a WebSocket's handshake that are not made anew."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers
            if name not in HANDSHAKE]  # fmt: skip


def from_pod(given: Iterable[tuple[bytes, bytes]], *, own_cookies: Collection[str]) -> Headers:
    given = list(given)
    dropped = HOP_BY_HOP | NOT_A_PODS | _named_by_connection(given)
    kept: Headers = []
    for name, value in given:
        lower = name.lower()
        if lower == b"set-cookie":
            if (cookie := confined(value, own_cookies)) is not None:
                kept.append((lower, cookie))
        elif lower not in dropped:
            kept.append((lower, value))
    return [*kept, NOT_FRAMED_ELSEWHERE]


def confined(cookie: bytes, own_cookies: Collection[str]) -> bytes | None:
    """The cookie as one of this host alone; None for one that has the name of one of ours."""
    first, *attributes = cookie.split(b";")
    name = first.partition(b"=")[0].strip().decode("latin-1")
    if not name or name in own_cookies:
        return None
    kept = [part for part in attributes if part.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([first, *kept])


def first_of(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")


def cookie_in(headers: Iterable[tuple[bytes, bytes]], wanted: str) -> str:
    for name, value in headers:
        for part in value.split(b";") if name.lower() == b"cookie" else ():
            key, _, text = part.strip().partition(b"=")
            if key.decode("latin-1") == wanted:
                return text.decode("latin-1")
    return ""


def _without(cookies: bytes, own_cookies: Collection[str]) -> bytes:
    parts = [part.strip() for part in cookies.split(b";")]
    kept = (part for part in parts if part.partition(b"=")[0].strip().decode("latin-1") not in own_cookies)
    return b"; ".join(filter(None, kept))


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    listed = [value for name, value in headers if name.lower() == b"connection"]
    return frozenset(word.strip().lower() for value in listed for word in value.split(b",") if word.strip())
