"""Here we find or make the launch template of a pool: what every machine of it is, whatever its type.

A template's name tells what is in it, so that the same settings find the same template, and other settings
make another one. Those that no settings lead to any more are removed.
"""
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.settings import AwsSettings
from pools.providers.aws.tags import filters, of_pool, tag_list

METADATA = {
    "HttpTokens": "required",  # version 2 only: no forged request gets the role's keys
    "HttpPutResponseHopLimit": 1,  # nor does what runs in a container
    "HttpEndpoint": "enabled",
    "InstanceMetadataTags": "enabled",
}


def launch_template(
    clients: Clients, settings: AwsSettings, installation: str, pool: str, *, image: str,
    groups: Sequence[str],
) -> str:  # fmt: skip
    """Its id."""
    data = template_data(settings, installation, pool, image=image, groups=groups)
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
    name = f"berth-{installation}-{pool}-{digest}"
    found = _ours(clients, installation, pool)
    if name not in found:
        made = clients.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData=data,
            TagSpecifications=[
                {"ResourceType": "launch-template", "Tags": tag_list(of_pool(installation, pool))}
            ],
        )
        found[name] = made["LaunchTemplate"]["LaunchTemplateId"]
    for other, template_id in found.items():
        if other != name:
            clients.ec2.delete_launch_template(LaunchTemplateId=template_id)
    return found[name]


def template_data(
    settings: AwsSettings, installation: str, pool: str, *, image: str, groups: Sequence[str]
) -> dict[str, Any]:
    tags = tag_list(of_pool(installation, pool))
    data: dict[str, Any] = {
        "ImageId": image,
        "SecurityGroupIds": list(groups),
        "MetadataOptions": METADATA,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume", "spot-instances-request")
        ],
    }
    if settings.instance_profile:
        data["IamInstanceProfile"] = {"Name": settings.instance_profile}
    if settings.volume_gib:
        volume = {"VolumeSize": settings.volume_gib, "VolumeType": "gp3", "Encrypted": True}
        data["BlockDeviceMappings"] = [
            {"DeviceName": settings.root_device, "Ebs": volume | {"DeleteOnTermination": True}}
        ]
    return data


def _ours(clients: Clients, installation: str, pool: str) -> dict[str, str]:
    """Ids by name."""
    pages = clients.ec2.get_paginator("describe_launch_templates").paginate(
        Filters=filters(of_pool(installation, pool))
    )
    return {
        told["LaunchTemplateName"]: told["LaunchTemplateId"]
        for page in pages
        for told in page["LaunchTemplates"]
    }
