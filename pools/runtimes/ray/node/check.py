"""Exit with 0 if this node's agent responds and Ray has started. Otherwise, print the reason.

python -m pools.runtimes.ray.node.check SETTINGS
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

from pools.runtimes.ray.node.settings import NodeSettings, node_settings


def main(path: str) -> int:
    obstacle = find_obstacle(node_settings(Path(path)))
    if obstacle:
        print(obstacle)
    return 1 if obstacle else 0


def find_obstacle(node: NodeSettings) -> str:
    """Return why the node cannot run pods yet, or an empty string if it can."""
    request = urllib.request.Request(
        f"http://{node.address}:{node.agent_port}/obstacle", data=b"{}", method="POST",
        headers={"Authorization": f"Bearer {node.secret}"},
    )  # fmt: skip
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=10) as response:
            return str(json.load(response))
    except urllib.error.URLError as error:
        return f"the agent is not responding: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
