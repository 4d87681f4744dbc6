"""Read a Ray node's settings from a file that only its owner can read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class NodeSettings:
    """Settings of one Ray node.

    `head` is the `address:port` that raylets join. On the head node, it is the node's own address. `temp` is
    Ray's temporary directory, which is deleted at the end; if it is empty, Ray uses its default. `workspaces`
    is a directory shared by all nodes, or empty if each node has its own. `extra` holds additional arguments
    for `ray start`.
    """

    label: str
    address: str
    head: str
    is_head: bool
    secret: str
    root: Path
    devices: int
    agent_port: int
    jobs_port: int
    temp: str = ""
    workspaces: str = ""
    environments: str = ""
    extra: tuple[str, ...] = ()


def node_settings(path: Path) -> NodeSettings:
    fields: dict[str, Any] = json.loads(path.read_text())
    return NodeSettings(**{**fields, "root": Path(fields["root"]), "extra": tuple(fields.get("extra", ()))})
