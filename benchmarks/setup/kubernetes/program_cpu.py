"""Measure the CPU time of the programs that are involved in starting a pod."""

import os
from collections import Counter
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PROGRAMS = {
    "kube-apiserver": "API server", "etcd": "etcd", "kube-scheduler": "scheduler",
    "kube-controller": "controller manager", "postgres": "PostgreSQL",
}  # fmt: skip
KUBELETS = b"benchmarks.setup.kubernetes.fake_kubelets"


def cpu_by_program() -> Counter[str]:
    """Return the CPU seconds used by each program on this machine.

    Ended processes are not counted. Unknown programs are summed as "other".
    """
    seconds: Counter[str] = Counter()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            name, _, fields = (directory / "stat").read_text().partition("(")[2].rpartition(")")
            command = (directory / "cmdline").read_bytes()
        except OSError:  # the process has ended
            continue
        program = PROGRAMS.get(name, "kubelets" if KUBELETS in command else "other")
        if directory.name == str(os.getpid()):
            program = "this process"
        user, system = fields.split()[11:13]
        seconds[program] += (int(user) + int(system)) / TICKS_PER_SECOND  # type: ignore[assignment]
    return seconds


def per_pod(seconds: Counter[str], pods: int) -> dict[str, float]:
    """Return the CPU milliseconds per pod, for each program and in total."""
    milliseconds = {name: round(1000 * value / pods, 1) for name, value in seconds.most_common()}
    return {**milliseconds, "all": round(1000 * sum(seconds.values()) / pods, 1)}
