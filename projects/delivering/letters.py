"""Here we put news into words and bodies, each channel in its own way; pure."""

import hashlib
import hmac
import json
from typing import Any

SIGNATURE = "X-Berth-Signature"


def subject(content: dict[str, Any]) -> str:
    return f"{content['project']}/{content['workload']} {said(content['event'])}"


def text(content: dict[str, Any]) -> str:
    lines = [f"{subject(content)}.", "", content["message"], "", f"Run {content['run']}, at {content['at']}."]
    return "\n".join(lines)


def said(event: str) -> str:
    return {"preempted": "had to give way", "started": "runs", "cancelled": "was cancelled"}.get(
        event, f"has {event}"
    )


def body(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def chat_body(content: dict[str, Any]) -> bytes:
    """Signs that a chat would read as its own language are taken out of what strangers wrote."""
    message = content["message"]
    for sign, harmless in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        message = message.replace(sign, harmless)
    return json.dumps({"text": f"*{subject(content)}*\n{message}"}).encode()


def signature(secret: str, body: bytes, seconds: int) -> str:
    """Of the time and the body: who keeps the time checked takes no old letter for a new one."""
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={signed}"
