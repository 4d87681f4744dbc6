"""Generate the table of attacks in docs/isolation.md.

python -m tests.isolation.table    write the table
"""

from collections.abc import Collection
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "isolation.md"
START, END = "<!-- attacks -->\n", "<!-- end of attacks -->\n"
OFF_AS_ROOT, OFF, NAMESPACES, USERS = "off, as root", "off", "namespaces", "users"
IMAGE = "users, in an image"
LEVELS = (OFF_AS_ROOT, OFF, NAMESPACES, USERS, IMAGE)
EVERYWHERE = frozenset(LEVELS)
# The levels at which each attack of `attacks.py` succeeds.
ATTACKS = {
    "read the secret key": {OFF_AS_ROOT, OFF},
    "read the admin password": {OFF_AS_ROOT, OFF},
    "connect to PostgreSQL's socket": {OFF_AS_ROOT, OFF},
    "read another project's workspace": {OFF_AS_ROOT, OFF},
    "read another pod's log": {OFF_AS_ROOT, OFF},
    "read another pod's order": {OFF_AS_ROOT, OFF},
    "read another pod's secret file": {OFF_AS_ROOT, OFF},
    "read its own order": {OFF_AS_ROOT, OFF},
    "write a record for itself": {OFF_AS_ROOT, OFF},
    "read another process's environment": {OFF_AS_ROOT, OFF},
    "read another process's command line": {OFF_AS_ROOT, OFF},
    "signal another pod": {OFF_AS_ROOT, OFF},
    "signal Berth": {OFF_AS_ROOT, OFF},
    "trace another pod": {OFF_AS_ROOT, OFF},
    "write to the machine's /tmp": {OFF_AS_ROOT, OFF},
    "write to the machine's /dev/shm": {OFF_AS_ROOT, OFF},
    "find another pod's shared memory": {OFF_AS_ROOT, OFF},
    "link to a file of Berth": {OFF_AS_ROOT, OFF},
    "write to /usr": {OFF_AS_ROOT},
    "read the kernel's log": {OFF_AS_ROOT},
    "change the core pattern": {OFF_AS_ROOT},
    "mount a file system": {OFF_AS_ROOT},
    "become root": {OFF_AS_ROOT},
    "create a user namespace": {OFF_AS_ROOT, OFF},
    "trace its own shim": {OFF_AS_ROOT, OFF},
    "enter the namespaces of another pod": {OFF_AS_ROOT},
    "run a setuid program as its owner": {OFF_AS_ROOT, OFF},
    "change its root directory": {OFF_AS_ROOT},
    "open files by their handles": {OFF_AS_ROOT},
    "write to a terminal of the machine": {OFF_AS_ROOT, OFF},
    "open a device of the machine": {OFF_AS_ROOT},
    "create a device node": {OFF_AS_ROOT},
    "change a setting in /sys": {OFF_AS_ROOT},
    "change the clock": {OFF_AS_ROOT},
    "change a network interface": {OFF_AS_ROOT},
    "open a raw socket": {OFF_AS_ROOT},
    "listen on a privileged port": {OFF_AS_ROOT},
    "load a BPF program or map": {OFF_AS_ROOT},
    "count events of other processes (perf)": {OFF_AS_ROOT},
    "use the kernel's keyrings": {OFF_AS_ROOT, OFF},
    "use io_uring": {OFF_AS_ROOT, OFF},
    "use userfaultfd": {OFF_AS_ROOT, OFF},
    "have Berth read a file through a link": {OFF_AS_ROOT, OFF},
    "have Berth delete a file through a link": set(),
    "learn the time of a file through a link": set(),
    "own a file of Berth through a link": set(),
    "leave a process behind": set(),
    "raise its own limits": {OFF_AS_ROOT},
    "start more processes than its limit": {OFF, NAMESPACES},
    "take more memory than its limit": {OFF, NAMESPACES},
    "take more memory than its limit in a child": {OFF, NAMESPACES},
    "fill /dev/shm beyond its memory limit": {OFF, NAMESPACES},
    "fill the disk of the node": EVERYWHERE,
    "connect to a port of the machine": EVERYWHERE,
    "connect to an abstract socket of the machine": EVERYWHERE,
}
# These depend on the limits that the machine enforces. An ordinary user usually cannot enforce any.
OF_PROCESSES = {"start more processes than its limit"}
OF_MEMORY = {
    "take more memory than its limit", "take more memory than its limit in a child",
    "fill /dev/shm beyond its memory limit",
}  # fmt: skip


def succeeded(level: str, limits: Collection[str]) -> list[str]:
    """Return the attacks that succeed at this isolation level if a machine enforces these limits, sorted."""
    names = {name for name, levels in ATTACKS.items() if level in levels} - OF_PROCESSES - OF_MEMORY
    names |= set() if "processes" in limits else OF_PROCESSES
    names |= set() if "memory" in limits else OF_MEMORY
    if level == OFF and "memory" in limits:  # the control groups then belong to the user
        names.add("raise its own limits")
    return sorted(names)


def markdown() -> str:
    lines = [
        "| A pod tries to | " + " | ".join(f"`{level}`" for level in LEVELS) + " |",
        "|---|" + "---|" * len(LEVELS),
    ]
    for name, levels in ATTACKS.items():
        cells = ("**succeeds**" if level in levels else "fails" for level in LEVELS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def document_with_table() -> str:
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(START)
    return before + START + "\n" + markdown() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    DOCUMENT.write_text(document_with_table())
