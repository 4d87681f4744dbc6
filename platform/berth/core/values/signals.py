"""Names and numbers of the Linux signals that terminate a process (on x86-64 and ARM)."""

SHELL_OFFSET = 128  # shells report exit code 128 + N for a process that signal N ended
SIGNALS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7,
    "SIGFPE": 8, "SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14,
    "SIGTERM": 15, "SIGSTKFLT": 16, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27,
    "SIGIO": 29, "SIGPWR": 30, "SIGSYS": 31,
}  # fmt: skip
_NAMES = {number: name for name, number in SIGNALS.items()}


def full_signal_name(name: str) -> str:
    """Return the name with its prefix: both `KILL` and `SIGKILL` become `SIGKILL`."""
    return name if name.startswith("SIG") else f"SIG{name}"


def signal_name(number: int) -> str:
    """Return the name of a signal. For an unknown signal, return the exit code that a shell would report."""
    return _NAMES.get(number, str(SHELL_OFFSET + number))
