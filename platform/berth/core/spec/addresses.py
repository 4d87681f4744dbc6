"""Notification addresses: email, webhook or chat."""

import re
from enum import StrEnum
from urllib.parse import urlsplit

CHAT_PREFIX = "slack:"
CHAT_HOST = "hooks.slack.com"
ALLOWED = "an email address, https://..., or slack:https://... for a chat that accepts Slack messages"
_MAIL = re.compile(r"[^@\s,;:<>\"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,255}")


class Channel(StrEnum):
    MAIL = "mail"
    WEBHOOK = "webhook"
    CHAT = "chat"


def channel_of(to: str) -> Channel | None:
    """Return the channel of an address, None if it is invalid."""
    if to.startswith(CHAT_PREFIX):
        return Channel.CHAT if _is_web(url_of(to)) else None
    if _is_web(to):
        return Channel.CHAT if urlsplit(to).hostname == CHAT_HOST else Channel.WEBHOOK
    return Channel.MAIL if _MAIL.fullmatch(to) else None


def url_of(to: str) -> str:
    return to.removeprefix(CHAT_PREFIX)


def _is_web(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text
    return plain and port_is_right and parts.scheme in ("http", "https") and bool(parts.hostname)
