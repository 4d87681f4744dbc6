"""A pool's security group, which allows incoming traffic only from the pool's nodes."""

from typing import Any

from pools.providers.aws.clients import Clients
from pools.providers.aws.tags import tag_filters, tag_list, tags_for_pool
from pools.providers.base import ProviderError, ProviderErrorKind

ANY_PROTOCOL = "-1"


def ensure_security_group(clients: Clients, installation: str, pool: str, subnets: tuple[str, ...]) -> str:
    """Return the ID of the pool's security group, and create the group if it does not exist. Idempotent."""
    vpc = _find_vpc(clients, subnets)
    group = _find_group(clients, installation, pool, vpc) or _create_group(clients, installation, pool, vpc)
    if not _allows_internal_traffic(group):
        _allow_internal_traffic(clients, group["GroupId"])
    return str(group["GroupId"])


def _find_vpc(clients: Clients, subnets: tuple[str, ...]) -> str:
    pages = clients.ec2.get_paginator("describe_subnets").paginate(SubnetIds=list(subnets))
    vpcs = {subnet["VpcId"] for page in pages for subnet in page["Subnets"]}
    if len(vpcs) != 1:
        message = f"the subnets are in {len(vpcs)} VPCs: {', '.join(sorted(vpcs))}"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return str(vpcs.pop())


def _find_group(clients: Clients, installation: str, pool: str, vpc: str) -> dict[str, Any] | None:
    filters = [*tag_filters(tags_for_pool(installation, pool)), {"Name": "vpc-id", "Values": [vpc]}]
    pages = clients.ec2.get_paginator("describe_security_groups").paginate(Filters=filters)
    groups = [group for page in pages for group in page["SecurityGroups"]]
    return min(groups, key=lambda group: group["GroupId"], default=None)


def _create_group(clients: Clients, installation: str, pool: str, vpc: str) -> dict[str, Any]:
    response = clients.ec2.create_security_group(
        GroupName=f"berth-{installation}-{pool}",
        Description=f"Nodes of the pool {pool}: internal traffic only",
        VpcId=vpc,
        TagSpecifications=[
            {"ResourceType": "security-group", "Tags": tag_list(tags_for_pool(installation, pool))}
        ],
    )
    return {"GroupId": response["GroupId"], "IpPermissions": []}


def _allows_internal_traffic(group: dict[str, Any]) -> bool:
    return any(
        pair.get("GroupId") == group["GroupId"]
        for rule in group["IpPermissions"]
        if rule["IpProtocol"] == ANY_PROTOCOL
        for pair in rule.get("UserIdGroupPairs", ())
    )


def _allow_internal_traffic(clients: Clients, group_id: str) -> None:
    clients.ec2.authorize_security_group_ingress(
        GroupId=group_id,
        IpPermissions=[{"IpProtocol": ANY_PROTOCOL, "UserIdGroupPairs": [{"GroupId": group_id}]}],
    )
