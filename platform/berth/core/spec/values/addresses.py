"""Notification addresses: email, webhook or chat."""

import re
from urllib.parse import urlsplit

from berth.core.backports import StrEnum

CHAT_PREFIX = "slack:"
CHAT_HOST = "hooks.slack.com"
ALLOWED = "an email address, https://..., or slack:https://... for a chat that accepts Slack messages"
_MAIL = re.compile(r"[^@\s,;:<>\"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,255}")


class Channel(StrEnum):
    MAIL = "mail"
    WEBHOOK = "webhook"
    CHAT = "chat"


def detect_channel(to: str) -> Channel | None:
    """Return the notification channel for an address, or None if the address is invalid."""
    if to.startswith(CHAT_PREFIX):
        return Channel.CHAT if _is_web_url(webhook_url(to)) else None
    if _is_web_url(to):
        return Channel.CHAT if urlsplit(to).hostname == CHAT_HOST else Channel.WEBHOOK
    return Channel.MAIL if _MAIL.fullmatch(to) else None


def webhook_url(to: str) -> str:
    return to.removeprefix(CHAT_PREFIX)


def _is_web_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_port_valid = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text
    return plain and is_port_valid and parts.scheme in ("http", "https") and bool(parts.hostname)
