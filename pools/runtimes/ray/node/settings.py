"""Read a node's settings from a private file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class NodeSettings:
    """`head` is the cluster's `address:port` for raylets; a head is told its own. `temp` is Ray's directory
    for this node alone, removed at its end; empty for Ray's own choice. `workspaces` is
    where all nodes find what pods share; empty: each has its own. `extra` goes to `ray start`."""

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
    told: dict[str, Any] = json.loads(path.read_text())
    return NodeSettings(**{**told, "root": Path(told["root"]), "extra": tuple(told.get("extra", ()))})
