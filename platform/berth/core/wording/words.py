"""Format amounts, counts and ranges, with units and correct plural forms."""

from collections.abc import Iterable, Sequence

from berth.core.values.amounts import MILLI

MINUTE, HOUR = 60, 3600
_UNITS = {"gpu": "GPU", "cpu": "CPU", "pods": "pod", "replicas": "replica"}
_WHOLE = ("pods", "replicas")
_MEMORY = {"memory_mib": "memory", "gpu_memory_mib": "GPU memory"}
MIB_PER_GIB = 1024
MAX_POSITION_RANGES = 2


def format_count(number: float, singular: str, plural: str = "") -> str:
    """Format a number with its noun, such as "1 node", "2.5 GPUs" or "12,345 tasks"."""
    return f"{format_number(number)} {singular if number == 1 else plural or singular + 's'}"


def format_amount(resource: str, value: int | None) -> str:
    """Format an amount that is given in the engine's units.

    Examples are "2.5 CPUs", "4 GiB of memory" and "no GPU".
    """
    if memory := _MEMORY.get(resource):
        if value is None:
            return f"any amount of {memory}"
        return f"{format_mib(value)} of {memory}" if value else f"no {memory}"
    unit = _UNITS.get(resource, resource)
    if value is None:
        return f"any number of {unit}s"
    if not value:
        return f"no {unit}"
    return format_count(value if resource in _WHOLE else value / MILLI, unit)


def format_mib(mib: int) -> str:
    """Format an amount of memory in GiB, or in MiB if it is below 1 GiB or would need more than three
    decimals.
    """
    if mib >= MIB_PER_GIB and mib % (MIB_PER_GIB // 8) == 0:
        return f"{format_number(mib / MIB_PER_GIB)} GiB"
    return f"{format_number(mib)} MiB"


def format_gpus(milli: int | None) -> str:
    return format_amount("gpu", milli)


def format_gpu_time(gpu_seconds: float | None) -> str:
    """Format GPU time in GPU-hours, or in GPU-minutes if it is less than an hour."""
    if not gpu_seconds:
        return "0 GPU-min"
    if gpu_seconds < 0.05 * MINUTE:
        return "< 0.1 GPU-min"
    if gpu_seconds < HOUR:
        minutes = gpu_seconds / MINUTE
        return f"{minutes:.0f} GPU-min" if minutes >= 10 else f"{minutes:.1f} GPU-min"
    return f"{gpu_seconds / HOUR:,.1f} GPU-h"


def format_number(number: float) -> str:
    """Format a number with thousands separators, at most three decimals and no trailing zeros."""
    return f"{number:,.3f}".rstrip("0").rstrip(".") if number % 1 else f"{int(number):,}"


def list_ranges(numbers: Iterable[int], prefix: str = "") -> list[str]:
    """Return the sorted numbers as text, with runs of at least three as ranges, such as "0 to 3" and "6"."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][-1] + 1 == number:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return [
        text
        for each in ranges
        for text in (
            [f"{prefix}{number}" for number in each]
            if len(each) < 3
            else [f"{prefix}{each[0]} to {prefix}{each[-1]}"]
        )
    ]


def format_ranges(numbers: Iterable[int]) -> str:
    """Format numbers as single numbers and ranges, such as "0 to 3, 6"."""
    return ", ".join(list_ranges(numbers))


def format_positions(positions: Iterable[int]) -> str:
    """Format queue positions as ranges, such as "2-3, 7".

    If there are many ranges, name only the first and the last.
    """
    ranges: list[list[int]] = []
    for number in sorted(set(positions)):
        if ranges and ranges[-1][-1] + 1 == number:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    texts = ["\N{EN DASH}".join(map(str, each)) for each in ranges]
    return ", ".join(texts) if len(texts) <= MAX_POSITION_RANGES else f"{texts[0]}, …, {texts[-1]}"


def format_pod_names(names: Iterable[tuple[str, int]]) -> str:
    """Format (role, index) pairs, for example as "worker-0 to worker-3, worker-6"."""
    indexes: dict[str, list[int]] = {}
    for role, index in names:
        indexes.setdefault(role, []).append(index)
    return ", ".join(text for role, numbers in indexes.items() for text in list_ranges(numbers, f"{role}-"))


def join_words(words: Sequence[str]) -> str:
    """Join words as in "a, b and c"."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def indefinite_article(digits: str) -> str:
    """Return "a" or "an" for a number, as in "an 8-GPU workload"."""
    return "an" if digits.startswith("8") or digits.partition(",")[0] in ("11", "18") else "a"


SPECIAL_WORDS = {"Backoff": "Restart delay", "NonPreemptibleOverQuota": "Non-preemptible over quota"}


def token_to_words(token: str) -> str:
    """Convert a reason token to words: WaitingForCapacity becomes "Waiting for capacity"."""
    if token in SPECIAL_WORDS:
        return SPECIAL_WORDS[token]
    words: list[str] = []
    token = token.lower() if token.isupper() else token
    for char in token.replace("_", " "):
        if char.isupper() and words and words[-1] != " ":
            words.append(" ")
        words.append(char.lower())
    return "".join(words).strip().capitalize()
