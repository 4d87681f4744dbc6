"""Rules that warn about and suspend workloads with idle GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, cast

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.values.durations import format_duration, parse_duration

Action = Literal["warn", "suspend", "none"]
ACTIONS: tuple[Action, ...] = ("warn", "suspend", "none")
NONE: Action = "none"  # a project with this action has no idle rule, even if its pool has one
KEYS = ("below", "after", "action", "grace", "warmup")
# Minimum and maximum of each duration, in seconds.
BOUNDS = {"after": (60, 7 * 86_400), "grace": (60, 7 * 86_400), "warmup": (0, 86_400)}
BELOW_ALLOWED = '1 to 100 percent, for example "5%"'


@dataclass(frozen=True, slots=True)
class IdleRule:
    """Idle rule of a pool or project. `below` is in percent of each GPU, and durations are in seconds.

    A workload is idle while all of its GPUs are used less than `below`. A warning is sent after `after`
    seconds. With the action `suspend`, the workload is suspended `grace` seconds later. The first `warmup`
    seconds of a pod do not count.
    """

    below: int = 5
    after: int = 3600
    action: Action = "warn"
    grace: int = 1800
    warmup: int = 600

    @property
    def grace_period(self) -> timedelta:
        return timedelta(seconds=self.grace)

    @property
    def text(self) -> str:
        """Format the rule as users enter it on the command line and in forms."""
        if self.action == NONE:
            return f"action={NONE}"
        durations = {key: format_duration(getattr(self, key)) for key in BOUNDS}
        grace = {"grace": durations["grace"]} if self.action == "suspend" else {}
        values = {"below": f"{self.below}%", "after": durations["after"], "action": self.action, **grace}
        return ",".join(f"{key}={value}" for key, value in {**values, "warmup": durations["warmup"]}.items())

    @property
    def sentence(self) -> str:
        if self.action == NONE:
            return "Workloads may leave their GPUs idle."
        condition = f"A workload whose GPUs all stay below {self.below}% for {format_duration(self.after)}"
        effect = "is warned"
        if self.action == "suspend":
            effect += f", and suspended {format_duration(self.grace)} later if they are still idle"
        warmup = f" The first {format_duration(self.warmup)} of each pod do not count." if self.warmup else ""
        return f"{condition} {effect}.{warmup}"


def read_rule(stored: Mapping[str, Any]) -> IdleRule | None:
    """Return the rule in `stored`, or None if `stored` is empty."""
    return IdleRule(**stored) if stored else None


def applicable_rule(of_project: Mapping[str, Any], of_pool: Mapping[str, Any]) -> IdleRule | None:
    """Return the rule for a project's workloads in a pool, or None. A project's rule overrides the pool's
    rule.
    """
    rule = read_rule(of_project or of_pool)
    return None if rule is None or rule.action == NONE else rule


def normalize_rule(value: object) -> dict[str, Any]:
    """Return the rule to store, or {} if there is none. Raises Invalid if the value is invalid."""
    if value in (None, {}):
        return {}
    problems = list(_problems(value))
    if problems:
        raise Invalid(problems)
    values = dict(cast("Mapping[str, Any]", value))
    if values.get("action") == NONE:
        return asdict(IdleRule(action=NONE))
    if "below" in values:
        values["below"] = _parse_percent(values["below"])
    values |= {key: parse_duration(values[key]) for key in BOUNDS if key in values}
    return asdict(IdleRule(**values))


def parse_text(text: str) -> dict[str, str]:
    """Parse KEY=VALUE pairs such as "below=5%,after=1h". Keys and values are not checked."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _problems(value: object) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem("idle_rule", "is not a mapping", format_value(value), ", ".join(KEYS))
        return
    for key in value:
        if key not in KEYS:
            yield Problem(f"idle_rule.{key}", "unknown key", format_value(key), suggest(str(key), KEYS))
    action = value.get("action", "warn")
    if action not in ACTIONS:
        allowed = suggest(str(action), ACTIONS)
        yield Problem("idle_rule.action", "is not a valid action", format_value(action), allowed)
    if "below" in value and _parse_percent(value["below"]) is None:
        yield Problem(
            "idle_rule.below", "is not a valid percentage", format_value(value["below"]), BELOW_ALLOWED
        )
    for key, (low, high) in BOUNDS.items():
        seconds = parse_duration(value[key]) if key in value else low
        if seconds is None or not low <= seconds <= high:
            allowed = f"{format_duration(low)} to {format_duration(high)}, for example 1h or 3600"
            yield Problem(f"idle_rule.{key}", "is not a valid duration", format_value(value[key]), allowed)


def _parse_percent(value: object) -> int | None:
    if isinstance(value, str) and value.removesuffix("%").strip().isdecimal():
        value = int(value.removesuffix("%"))
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100:
        return value
    return None
