"""Parse option values of `berth submit`."""

from typing import Any

from berth.cli.exits import invalid_value_error
from berth.cli.options.quantities import parse_duration, parse_number, parse_number_or_text

Text = str | None
Texts = list[str] | None


def without_empty_values(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value not in ([], {})}


def parse_seconds(option: str, text: Text) -> int | None:
    return None if text is None else parse_duration(option, text)


def parse_amount(text: Text) -> int | float | Text:
    return None if text is None else parse_number_or_text(text)


def parse_priority(text: Text) -> int | Text:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def parse_restart_policy(text: Text) -> dict[str, Any] | None:
    if text is None:
        return None
    kind, _, times = text.partition(":")
    return {"kind": kind} if not times else {"kind": kind, "max_restarts": parse_number("--restart", times)}


def parse_notice(text: Text) -> dict[str, Any] | None:
    if text is None:
        return None
    signal, sign, lead = text.partition("@")
    if not sign or not signal:
        raise invalid_value_error(
            "--preemption-signal",
            "is not a valid preemption signal",
            text,
            "SIGNAL@TIME, for example USR1@5m",
        )
    return {"signal": signal, "lead": parse_duration("--preemption-signal", lead)}


def parse_retry(text: str) -> dict[str, Any]:
    from berth.core.spec.sections.retry_text import InvalidRetryText, parse_retry_text

    try:
        return parse_retry_text(text)
    except InvalidRetryText as error:
        raise invalid_value_error("--retry", error.message, error.received, error.allowed) from None


def build_notification(to: str, events: Texts) -> dict[str, Any]:
    return {"to": to, "on": events} if events else {"to": to}
