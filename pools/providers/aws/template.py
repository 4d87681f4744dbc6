"""Find or create a pool's launch templates, named by content.

A template's name tells what is in it, so that the same settings find the same template, and other settings
make another one. Those that no settings lead to any more are removed. Spot has one of its own: EC2 launches
nothing on demand by a template that would tag spot requests.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.settings import AwsSettings, Purchase
from pools.providers.aws.tags import filters, of_pool, tag_list
from pools.providers.base import ProviderError, ProviderErrorKind

METADATA = {
    "HttpTokens": "required",  # version 2 only: no forged request gets the role's keys
    "HttpPutResponseHopLimit": 1,  # nor does what runs in a container
    "HttpEndpoint": "enabled",
    "InstanceMetadataTags": "enabled",
}


def launch_templates(
    clients: Clients, settings: AwsSettings, installation: str, pool: str, *, image: str,
    groups: Sequence[str],
) -> dict[Purchase, str]:  # fmt: skip
    """Their ids, by how machines are bought."""
    found, names = _ours(clients, installation, pool), dict[Purchase, str]()
    for purchase in settings.purchases:
        data = template_data(settings, installation, pool, purchase, image=image, groups=groups)
        names[purchase] = name = _name(installation, pool, data)
        if name not in found:
            found[name] = _make(clients, installation, pool, name, data)
    for other in found.keys() - set(names.values()):
        clients.ec2.delete_launch_template(LaunchTemplateId=found[other])
    return {purchase: found[name] for purchase, name in names.items()}


def _name(installation: str, pool: str, data: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
    return f"berth-{installation}-{pool}-{digest}"


def _make(clients: Clients, installation: str, pool: str, name: str, data: dict[str, Any]) -> str:
    tags = [{"ResourceType": "launch-template", "Tags": tag_list(of_pool(installation, pool))}]
    made = clients.ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=tags
    )
    return str(made["LaunchTemplate"]["LaunchTemplateId"])


def template_data(
    settings: AwsSettings, installation: str, pool: str, purchase: Purchase, *, image: str,
    groups: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    tagged = ["instance", "volume"] + (["spot-instances-request"] if purchase == "spot" else [])
    tags = tag_list(of_pool(installation, pool))
    data: dict[str, Any] = {
        "ImageId": image,
        "SecurityGroupIds": list(groups),
        "MetadataOptions": METADATA,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in tagged],
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


def image_id(clients: Clients, settings: AwsSettings) -> str:
    if settings.image is not None:
        return settings.image
    found = clients.ssm.get_parameter(Name=settings.image_parameter)["Parameter"]["Value"]
    if not str(found).startswith("ami-"):
        message = f"the parameter {settings.image_parameter} does not contain an image id"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return str(found)
