"""Here we break the engine on purpose, one rule at a time, and see that a claim falls. Run by hand.

    python tests/engine/mutations.py [words of a mutation's name]

Each mutation is made in a copy of the tree. One that survives, or whose line is gone, is an error.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "scheduler/engine"
CLAIMS = (
    "tests/engine/test_scenarios.py",
    "tests/engine/test_fair_share_numbers.py",
    "tests/engine/test_laws.py",
)
SETTINGS = """[pytest]
pythonpath = . platform
addopts = -p no:django -p no:cacheprovider --noconftest
markers = shows(*ids): behaviours
"""


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    line: str
    broken: str


MUTATIONS = (
    Mutation(
        "firm work may give way",
        "law.py",
        "return gang.firm or gang is self.gang or protected(",
        "return gang is self.gang or protected(",
    ),
    Mutation(
        "equal priorities preempt",
        "laws.py",
        "and gang.workload.priority < self.gang.workload.priority",
        "and gang.workload.priority <= self.gang.workload.priority",
    ),
    Mutation(
        "reclaim takes below quota",
        "laws.py",
        "elif held > theirs.quota[kind] and self.stays_in_quota[mine]:\n"
        "                yield kind, theirs.quota[kind]",
        "elif self.stays_in_quota[mine]:\n                yield kind, 0",
    ),
    Mutation(
        "borrowers may reclaim",
        "laws.py",
        "self.entitled = over_share(gang, asked) is None\n        self.turns",
        "self.entitled = True\n        self.turns",
    ),
    Mutation(
        "limits are not looked at",
        "eligible.py",
        "kind = over(account.allocated, account.cap, asked)",
        "kind = None",
    ),
    Mutation(
        "firm work may borrow",
        "eligible.py",
        "kind = over(account.firm, account.quota, asked)",
        "kind = None",
    ),
    Mutation(
        "the minimum runtime is forgotten",
        "law.py",
        "gang is self.gang or protected(self.board, gang, self._seconds[gang.account])",
        "gang is self.gang",
    ),
    Mutation(
        "left-over units go by age alone",
        "shares.py",
        "remainders.append((-remainder, *claim.age, claim))",
        "remainders.append((0, *claim.age, claim))",
    ),
    Mutation(
        "rank plays no part in over-quota",
        "shares.py",
        "key=lambda claim: (-claim.account.rank, claim.age)",
        "key=lambda claim: (claim.account.rank, claim.age)",
    ),
    Mutation(
        "history pushes the wrong way",
        "shares.py",
        "n + k * (n - claim.usage)",
        "n + k * (claim.usage - n)",
    ),
    Mutation(
        "a gang is whole one short",
        "gang.py",
        "return len(self.live) + self.done >= self.role.min",
        "return len(self.live) + self.done + 1 >= self.role.min",
    ),
    Mutation(
        "taints are overlooked",
        "matching.py",
        "taint.effect in _HARD and not tolerates(role.tolerations, taint)",
        "False",
    ),
    Mutation(
        "the pool's delay counts though it cannot grow",
        "eligible.py",
        "board.pool.preemption_delay if board.can_grow else 0",
        "board.pool.preemption_delay",
    ),
    Mutation(
        "grace is endless",
        "actions/stale_gangs.py",
        "return grace >= 0 and",
        "return grace < 0 and",
    ),
)


UNBROKEN = Mutation("nothing", "", "", "")


def main() -> int:
    words = sys.argv[1:]
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation.name for word in words)]
    already = fallen(UNBROKEN)
    survivors = 0
    for mutation in chosen:
        down = fallen(mutation, already)
        survivors += not down
        print(f"{'falls   ' if down else 'SURVIVES'}  {mutation.name}  {' '.join(down)}", flush=True)
    return 1 if survivors else 0


def fallen(mutation: Mutation, already: Sequence[str] = ()) -> list[str]:
    """The claims that fall in a copy with that line broken (the first, once some are known to be down)."""
    with tempfile.TemporaryDirectory(prefix="berth-mutation-") as place:
        copy = Path(place)
        for part in ("scheduler/engine", "platform/berth/core", "tests/engine"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for package in ("scheduler", "platform/berth"):
            (copy / package / "__init__.py").touch()
        if mutation is not UNBROKEN:
            _break(copy / ENGINE / mutation.file, mutation)
        (copy / "mutation.ini").write_text(SETTINGS, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-c", "mutation.ini", "--rootdir", ".", "-q", *CLAIMS]
        command += ["-x"] if mutation is not UNBROKEN else []
        command += [f"--deselect={claim}" for claim in already]
        environment = {**os.environ, "BERTH_LAWS_SHRINK": "no"}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    down = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return down or ([] if done.returncode == 0 else ["nothing runs any more"])


def _break(path: Path, mutation: Mutation) -> None:
    source = path.read_text(encoding="utf-8")
    if mutation.line not in source:
        raise SystemExit(f"{mutation.name}: its line is gone from {mutation.file}: {mutation.line}")
    path.write_text(source.replace(mutation.line, mutation.broken), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
