"""Create and delete a pool's EC2 launch templates.

A template's name contains a digest of its content, so equal settings share a template.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.settings import AwsSettings, Purchase
from pools.providers.aws.tags import tag_filters, tag_list, tags_for_pool
from pools.providers.base import ProviderError, ProviderErrorKind

METADATA = {
    "HttpTokens": "required",  # require IMDSv2, so that forged requests cannot read the role's credentials
    "HttpPutResponseHopLimit": 1,  # keep containers from reading the credentials
    "HttpEndpoint": "enabled",
    "InstanceMetadataTags": "enabled",
}


def ensure_launch_templates(
    clients: Clients, settings: AwsSettings, installation: str, pool: str, *, image: str,
    groups: Sequence[str],
) -> dict[Purchase, str]:  # fmt: skip
    """Create missing templates and delete outdated ones. Return the template ID for each purchase option."""
    ids, names = _existing_ids(clients, installation, pool), dict[Purchase, str]()
    for purchase in settings.purchases:
        data = template_data(settings, installation, pool, purchase, image=image, groups=groups)
        names[purchase] = name = _template_name(installation, pool, data)
        if name not in ids:
            ids[name] = _create_template(clients, installation, pool, name, data)
    for outdated in ids.keys() - set(names.values()):
        clients.ec2.delete_launch_template(LaunchTemplateId=ids[outdated])
    return {purchase: ids[name] for purchase, name in names.items()}


def _template_name(installation: str, pool: str, data: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
    return f"berth-{installation}-{pool}-{digest}"


def _create_template(clients: Clients, installation: str, pool: str, name: str, data: dict[str, Any]) -> str:
    tags = [{"ResourceType": "launch-template", "Tags": tag_list(tags_for_pool(installation, pool))}]
    response = clients.ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=tags
    )
    return str(response["LaunchTemplate"]["LaunchTemplateId"])


def template_data(
    settings: AwsSettings, installation: str, pool: str, purchase: Purchase, *, image: str,
    groups: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    resource_types = ["instance", "volume"] + (["spot-instances-request"] if purchase == "spot" else [])
    tags = tag_list(tags_for_pool(installation, pool))
    data: dict[str, Any] = {
        "ImageId": image,
        "SecurityGroupIds": list(groups),
        "MetadataOptions": METADATA,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in resource_types],
    }
    if settings.instance_profile:
        data["IamInstanceProfile"] = {"Name": settings.instance_profile}
    if settings.volume_gib:
        volume = {"VolumeSize": settings.volume_gib, "VolumeType": "gp3", "Encrypted": True}
        data["BlockDeviceMappings"] = [
            {"DeviceName": settings.root_device, "Ebs": volume | {"DeleteOnTermination": True}}
        ]
    return data


def _existing_ids(clients: Clients, installation: str, pool: str) -> dict[str, str]:
    pages = clients.ec2.get_paginator("describe_launch_templates").paginate(
        Filters=tag_filters(tags_for_pool(installation, pool))
    )
    return {
        description["LaunchTemplateName"]: description["LaunchTemplateId"]
        for page in pages
        for description in page["LaunchTemplates"]
    }


def resolve_image_id(clients: Clients, settings: AwsSettings) -> str:
    if settings.image is not None:
        return settings.image
    value = clients.ssm.get_parameter(Name=settings.image_parameter)["Parameter"]["Value"]
    if not str(value).startswith("ami-"):
        message = f"the parameter {settings.image_parameter} does not contain an image ID"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return str(value)
