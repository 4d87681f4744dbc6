"""Compose notification text and request bodies for each channel."""

import hashlib
import hmac
import json
from typing import Any

SIGNATURE = "X-Berth-Signature"


def subject(content: dict[str, Any]) -> str:
    event = content["event"]
    if event == "test":
        return f"Test message for {content['scope']}"
    if event == "budget":
        return f"{content['owner']} has used {content['percent']}% of its budget"
    if event == "schedule":
        return f"The schedule {content['project']}/{content['schedule']} could not submit a run"
    if event == "pool":
        stopped = content.get("stopped", False)
        return f"The node pool {content['pool']} {'has stopped provisioning' if stopped else 'is failing'}"
    if event == "pending":
        return f"{content['project']}/{content['workload']} has been pending for {content['minutes']} minutes"
    if event == "idle":
        name = f"{content['project']}/{content['workload']}"
        if content.get("reason") == "IdleGpus":
            return f"{name} was suspended because its GPUs were idle"
        return f"The GPUs of {name} have been idle for {content['minutes']} minutes"
    if "array" in content:
        return f"The array {content['project']}/{content['array']} {event_verb(event)}"
    return f"{content['project']}/{content['workload']} {event_verb(event)}"


def plain_text(content: dict[str, Any]) -> str:
    run = f"Run {content['run']}, at" if "run" in content else "At"
    lines = [f"{subject(content)}.", "", content["message"], "", f"{run} {content['at']}."]
    return "\n".join(lines)


def event_verb(event: str) -> str:
    verbs = {
        "preempted": "was evicted",
        "started": "has started",
        "cancelled": "was cancelled",
        "unschedulable": "is unschedulable",
    }
    return verbs.get(event, f"has {event}")


def body(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def chat_body(content: dict[str, Any]) -> bytes:
    """Return the JSON body for a chat service, with its markup characters escaped."""
    message = content["message"]
    for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        message = message.replace(char, escaped)
    return json.dumps({"text": f"*{subject(content)}*\n{message}"}).encode()


def body_signature(secret: str, body: bytes, seconds: int) -> str:
    """Return a signature of the timestamp and body. The timestamp lets receivers detect replays."""
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={signed}"
