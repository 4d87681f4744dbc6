"""Filter headers between browsers and pods.

Berth's own cookies never reach a pod, and a pod cannot set cookies of other hosts.
"""

from collections.abc import Collection, Iterable

# Values of Sec-Fetch-Site for a page's requests to its own origin.
# Other programs do not send Sec-Fetch-Site. Browsers send `none` for bookmarks and typed URLs.
SAME_ORIGIN = ("", "same-origin", "none")

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
# Headers that the proxy sets or replaces for its own connection to the pod.
SET_BY_PROXY = frozenset({
    b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-port",
    b"x-real-ip", b"expect",
})  # fmt: skip
# Headers that affect an entire site or other hosts, so pods may not send them.
SITE_WIDE = frozenset({
    b"alt-svc", b"clear-site-data", b"expect-ct", b"nel", b"public-key-pins", b"report-to",
    b"reporting-endpoints", b"strict-transport-security",
})  # fmt: skip
HANDSHAKE = frozenset({
    b"host", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol",
    b"sec-websocket-extensions",
})  # fmt: skip
FRAME_POLICY = (b"content-security-policy", b"frame-ancestors 'self'")


def request_headers_for_pod(
    headers: Iterable[tuple[bytes, bytes]], *, own_cookies: Collection[str], secret: str, scheme: str
) -> Headers:
    """Return the request headers to send to the pod.

    The port's secret is added unless Authorization is set.
    """
    received = list(headers)
    dropped = HOP_BY_HOP | SET_BY_PROXY | _connection_header_names(received)
    forwarded: Headers = []
    for name, value in received:
        lower = name.lower()
        if lower == b"cookie":
            if rest := _remove_cookies(value, own_cookies):
                forwarded.append((lower, rest))
        elif lower not in dropped:
            forwarded.append((lower, value))
    if not any(name == b"authorization" for name, _ in forwarded):
        forwarded.append((b"authorization", b"Bearer " + secret.encode()))
    host = next((value for name, value in forwarded if name == b"host"), b"")
    return [*forwarded, (b"x-forwarded-proto", scheme.encode()), (b"x-forwarded-host", host)]


def handshake_headers_for_pod(headers: Headers) -> list[tuple[str, str]]:
    """Return the headers of a WebSocket handshake, except those that the client library sets itself."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers
            if name not in HANDSHAKE]  # fmt: skip


def response_headers_from_pod(
    headers: Iterable[tuple[bytes, bytes]], *, own_cookies: Collection[str]
) -> Headers:
    received = list(headers)
    dropped = HOP_BY_HOP | SITE_WIDE | _connection_header_names(received)
    forwarded: Headers = []
    for name, value in received:
        lower = name.lower()
        if lower == b"set-cookie":
            if (cookie := host_only_cookie(value, own_cookies)) is not None:
                forwarded.append((lower, cookie))
        elif lower not in dropped:
            forwarded.append((lower, value))
    return [*forwarded, FRAME_POLICY]


def host_only_cookie(cookie: bytes, own_cookies: Collection[str]) -> bytes | None:
    """Return the cookie restricted to this host, or None if its name is reserved for Berth."""
    first, *attributes = cookie.split(b";")
    name = first.partition(b"=")[0].strip().decode("latin-1")
    if not name or name in own_cookies:
        return None
    forwarded = [part for part in attributes if part.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([first, *forwarded])


def find_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


def find_cookie(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    for header, value in headers:
        for part in value.split(b";") if header.lower() == b"cookie" else ():
            key, _, text = part.strip().partition(b"=")
            if key.decode("latin-1") == name:
                return text.decode("latin-1")
    return ""


def _remove_cookies(cookies: bytes, own_cookies: Collection[str]) -> bytes:
    parts = [part.strip() for part in cookies.split(b";")]
    forwarded = (
        part for part in parts if part.partition(b"=")[0].strip().decode("latin-1") not in own_cookies
    )
    return b"; ".join(filter(None, forwarded))


def _connection_header_names(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    listed = [value for name, value in headers if name.lower() == b"connection"]
    return frozenset(word.strip().lower() for value in listed for word in value.split(b",") if word.strip())


def is_cross_site(
    headers: Iterable[tuple[bytes, bytes]], *, own_origin: str, method: str, is_socket: bool
) -> bool:
    """Return whether the request came from a different site.

    Following a link from another site does not count as cross-site.
    """
    headers = list(headers)
    origin = find_header(headers, b"origin")
    if origin:
        return origin.lower() != own_origin
    site = find_header(headers, b"sec-fetch-site").lower()
    if site in SAME_ORIGIN:
        return False
    follows_link = find_header(headers, b"sec-fetch-mode").lower() == "navigate" and method in (
        "GET",
        "HEAD",
    )
    targets_page = find_header(headers, b"sec-fetch-dest").lower() == "document"
    return is_socket or not (follows_link and targets_page)
