"""The table of attacks in docs/isolation.md.

python -m tests.isolation.table    write the table
"""

from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "isolation.md"
START, END = "<!-- attacks -->\n", "<!-- end of attacks -->\n"
OFF_AS_ROOT, OFF, NAMESPACES, USERS = "off, as root", "off", "namespaces", "users"
LEVELS = (OFF_AS_ROOT, OFF, NAMESPACES, USERS)
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
    "connect to a port of the machine": EVERYWHERE,
}


def succeeded(level: str) -> list[str]:
    """Return the attacks that succeed at this level, sorted."""
    return sorted(name for name, levels in ATTACKS.items() if level in levels)


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
