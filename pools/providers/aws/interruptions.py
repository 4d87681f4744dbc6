"""Detect interruptions of spot instances from the status of the spot request.

The status changes to `marked-for-termination` two minutes before the instance ends.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.tags import tag_filters
from pools.providers.base import Interruption

NOTICE_PERIOD = timedelta(minutes=2)
TERMINATION = "Server.SpotInstanceTermination"  # EC2 state reason of a terminated spot instance
MARKED_STATUSES = ("marked-for-termination", "marked-for-stop", "marked-for-hibernation")


def upcoming_interruptions(
    clients: Clients, tags: Mapping[str, str], spot_ids: Collection[str]
) -> dict[str, Interruption]:
    """Return the upcoming interruptions, keyed by instance ID."""
    if not spot_ids:
        return {}
    query_filters = [*tag_filters(tags), {"Name": "state", "Values": ["active"]}]
    pages = clients.ec2.get_paginator("describe_spot_instance_requests").paginate(Filters=query_filters)
    upcoming: dict[str, Interruption] = {}
    for page in pages:
        for request in page["SpotInstanceRequests"]:
            status, instance_id = request.get("Status", {}), request.get("InstanceId")
            if instance_id in spot_ids and status.get("Code") in MARKED_STATUSES:
                since = status.get("UpdateTime")
                interruption_at = since + NOTICE_PERIOD if since is not None else None
                upcoming[instance_id] = Interruption("EC2 will interrupt this spot instance", interruption_at)
    return upcoming


def past_interruption(description: Mapping[str, Any]) -> Interruption | None:
    """Return the interruption if EC2 has ended the spot instance, even without notice. Otherwise, return
    None.
    """
    if description.get("StateReason", {}).get("Code") != TERMINATION:
        return None
    return Interruption("EC2 has interrupted this spot instance")
