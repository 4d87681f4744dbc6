"""Validate object store URLs."""

from urllib.parse import urlsplit

from berth.core.spec.values.texts import find_control_character


def endpoint_problem(value: object) -> str:
    """Return why a value is not a valid object store URL, or an empty string if it is."""
    message = "is not a valid object store URL"
    if not isinstance(value, str) or find_control_character(value) or " " in value:
        return message
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return message
    if parts.username is not None or parts.password is not None:
        return "contains credentials, which belong in a secret"
    is_plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    return "" if is_url and is_plain else message
