"""Read EC2's instance metadata, which describes the instance and announces interruptions."""

from __future__ import annotations

import json
import os
import urllib.request

METADATA = os.environ.get("BERTH_METADATA_URL", "http://169.254.169.254")


def get_metadata(path: str) -> str:
    """Return a value from EC2's metadata service (IMDSv2), or an empty string if there is none."""
    ttl_header = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        request = urllib.request.Request(METADATA + "/latest/api/token", method="PUT", headers=ttl_header)
        token = urllib.request.urlopen(request, timeout=2).read().decode()
        headers = {"X-aws-ec2-metadata-token": token}
        request = urllib.request.Request(METADATA + "/latest/meta-data/" + path, headers=headers)
        return str(urllib.request.urlopen(request, timeout=2).read().decode())
    except OSError:
        return ""


def detect_interruption() -> dict[str, object] | None:
    action = get_metadata("spot/instance-action")
    if action:
        return {"reason": "EC2 will interrupt this spot instance", "at": json.loads(action)["time"]}
    if get_metadata("events/recommendations/rebalance"):
        return {"reason": "EC2 recommends rebalancing this spot instance", "at": None}
    return None
