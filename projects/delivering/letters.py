"""Compose notification texts and bodies for each channel."""

import hashlib
import hmac
import json
from typing import Any

SIGNATURE = "X-Berth-Signature"


def subject(content: dict[str, Any]) -> str:
    event = content["event"]
    if event == "budget":
        return f"{content['owner']} has used {content['percent']} % of its budget"
    if event == "pool":
        stopped = content.get("stopped", False)
        return f"The node pool {content['pool']} {'orders no more nodes' if stopped else 'is failing'}"
    if event == "waiting":
        return f"{content['project']}/{content['workload']} has waited {content['minutes']} minutes"
    if event == "idle":
        whose = f"{content['project']}/{content['workload']}"
        return f"The GPUs of {whose} have been idle for {content['minutes']} minutes"
    return f"{content['project']}/{content['workload']} {said(event)}"


def text(content: dict[str, Any]) -> str:
    run = f"Run {content['run']}, at" if "run" in content else "At"
    lines = [f"{subject(content)}.", "", content["message"], "", f"{run} {content['at']}."]
    return "\n".join(lines)


def said(event: str) -> str:
    verbs = {
        "preempted": "had to give way",
        "started": "runs",
        "cancelled": "was cancelled",
        "unschedulable": "can never start as specified",
    }
    return verbs.get(event, f"has {event}")


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
