"""Validate the URL and the CA certificates of slurmrestd."""

import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx
from pydantic_core import PydanticCustomError

URL_ALLOWED = "https://HOST[:PORT], http://127.0.0.1:PORT on Berth's machine, or unix:/PATH for a socket"


def check_url(url: str) -> str:
    """Return the URL. Raises PydanticCustomError if it is unusable or would send the token unencrypted."""
    if url.startswith("unix:"):
        if not url.startswith("unix:/") or not url.isprintable():
            raise PydanticCustomError(
                "rest_url", "must contain an absolute path of printable characters", {"allowed": URL_ALLOWED}
            )
        return url
    try:
        parts = urlsplit(url)
        host = parts.hostname and parts.port != 0 and httpx.URL(url).host
    except (ValueError, httpx.InvalidURL):
        host = None
    is_plain = host and not parts.username and not parts.password and not parts.query and not parts.fragment
    if not is_plain or parts.scheme not in ("http", "https") or not url.isascii() or not url.isprintable():
        raise PydanticCustomError("rest_url", "is not a valid slurmrestd URL", {"allowed": URL_ALLOWED})
    if parts.scheme == "http" and not _is_loopback(str(host)):
        message = "would send the token over an unencrypted connection"
        raise PydanticCustomError("rest_url", message, {"allowed": URL_ALLOWED})
    return f"{parts.scheme}{url[len(parts.scheme) :]}".rstrip("/")


def check_certificate(text: str) -> str:
    """Return the certificates. Raises PydanticCustomError if they are not in PEM format."""
    try:
        ssl.create_default_context(cadata=text.strip() or "empty")
    except (ssl.SSLError, ValueError, TypeError):
        allowed = "-----BEGIN CERTIFICATE----- and so on"
        raise PydanticCustomError("rest_ca", "is not a valid PEM certificate", {"allowed": allowed}) from None
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
