"""Faults on hosts in network namespaces, and checks that Berth leaves nothing behind on them."""

import subprocess
from collections.abc import Callable

from tests.journeys.installation import until
from tests.journeys.kills.faults import Fault, Hanging, Pids, find_processes, kill
from tests.journeys.kills.traffic import PATIENCE
from tests.journeys.on_hosts.host_namespaces import NamespaceHost
from tests.journeys.on_hosts.ssh_installation import agents

FOREIGN_FILE = "theirs"


def running(host: NamespaceHost, *words: str) -> Pids:
    """Return a function that finds the host's processes whose command line contains all words."""
    return lambda: find_processes(host.pids(), *words)


def agent_and_node_faults(host: NamespaceHost, hanging: Hanging) -> list[Fault]:
    """Return faults for the agent, Ray node and shims of a host."""
    name, agent = host.name, running(host, "berth-agent", "run")
    return [
        kill(f"agent of {name}", agent, 2),
        kill(f"agent or supervisor of {name}", lambda: agents(host)),
        kill(f"shim on {name}", running(host, "shim"), 2),
        kill(f"node on {name}", running(host, "ray.node.main")),
        kill(f"raylet on {name}", running(host, "raylet/raylet")),
        hanging.hang(f"agent of {name}", agent),
    ]


def start_foreign_process(host: NamespaceHost) -> "subprocess.Popen[bytes]":
    """Create a file and a process on the host that do not belong to Berth."""
    (host.directory / "lib" / FOREIGN_FILE).write_text("not Berth's")
    return subprocess.Popen(["ip", "netns", "exec", host.namespace, "sleep", "infinity"])


def check_only_foreign_is_left(
    host: NamespaceHost, process: "subprocess.Popen[bytes]", details: Callable[[], object]
) -> None:
    """Check that only the SSH server and the foreign file and process are left on the host."""
    assert [path.name for path in (host.directory / "lib").iterdir()] == [FOREIGN_FILE]
    until(lambda: set(host.pids()) == {process.pid, host.process.pid}, PATIENCE, details)
    process.kill()
    process.wait()
