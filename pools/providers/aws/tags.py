"""EC2 tags that identify Berth's instances, their pool and their launch request."""

from collections.abc import Iterable, Mapping

INSTALLATION, POOL = "berth:installation", "berth:pool"
ORDER, ORDINAL, NODE = "berth:order", "berth:ordinal", "berth:node"

Tag = dict[str, str]


def tag_list(tags: Mapping[str, str]) -> list[Tag]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def tag_map(tags: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags or ()}


def tags_for_pool(installation: str, pool: str) -> dict[str, str]:
    return {INSTALLATION: installation, POOL: pool}


def tag_filters(tags: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in sorted(tags.items())]
