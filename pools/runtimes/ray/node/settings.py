"""Read a Ray node's settings from a file that only its owner can read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class NodeSettings:
    """Settings of one Ray node.

    `head` is the head node's `address:port`. `temp` is Ray's temporary directory, which is deleted when Ray
    ends, or empty for the default. `workspaces` is a directory shared by all nodes, or empty. `extra` holds
    further arguments for `ray start`.
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
