"""Retry rules on one line, for the command line and the submit form: `75,SIGKILL max=5 backoff=30s`."""

from collections.abc import Mapping
from typing import Any

from berth.core.problems import suggest
from berth.core.spec.sections.retry import RetryRule

KEYS = tuple(key for key in RetryRule.model_fields if key != "on")
FLAG = "other_node"
EXAMPLE = "75,SIGKILL max=5 backoff=30s other_node"


class InvalidRetryText(ValueError):
    """Raised if the text is not a retry rule. `allowed` describes the valid form."""

    def __init__(self, message: str, received: str, allowed: str) -> None:
        super().__init__(message)
        self.message, self.received, self.allowed = message, received, allowed


def parse_retry_text(text: str) -> dict[str, Any]:
    """Parse one line of text into a retry rule, without validating its values. Raises InvalidRetryText."""
    kinds, *settings = text.split() or [""]
    if not kinds or "=" in kinds:
        raise InvalidRetryText("does not begin with a kind of failure", text[:80], EXAMPLE)
    rule: dict[str, Any] = {"on": [_number_or_text(kind) for kind in kinds.split(",") if kind]}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if key not in KEYS:
            raise InvalidRetryText("has an unknown key", key[:80], suggest(key, KEYS))
        if key in rule:
            raise InvalidRetryText("sets a key twice", key, "each key once")
        if not sign and key != FLAG:
            raise InvalidRetryText("has no value", key, f"{key}=VALUE")
        rule[key] = value in ("", "true") if key == FLAG else _number_or_text(value)
    return rule


def format_retry_text(rule: object) -> str | None:
    """Format the rule as one line. Return None if this format cannot express the rule."""
    if not isinstance(rule, Mapping) or not isinstance(rule.get("on"), list) or not rule["on"]:
        return None
    words = [",".join(str(kind) for kind in rule["on"])]
    for key, value in rule.items():
        if key == FLAG and value is True:
            words.append(FLAG)
        elif key != "on":
            words.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    text = " ".join(words)
    try:
        return text if parse_retry_text(text) == rule else None
    except InvalidRetryText:
        return None


def _number_or_text(text: str) -> int | float | str:
    if text.isascii() and text.isdigit():
        return int(text)
    whole, _, fraction = text.partition(".")
    return float(text) if text.isascii() and whole.isdigit() and fraction.isdigit() else text
