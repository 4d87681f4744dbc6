"""Image policies, which decide which container images the workloads of a pool may or must use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.values.images import ImageReference, parse_image

ALLOW, REQUIRE, FORBID = MODES = ("allow", "require", "forbid")
KEYS = ("mode", "patterns")
PATTERNS_MAX, PATTERN_MAX = 100, 512
PATTERN_ALLOWED = "REGISTRY/NAME or REGISTRY/NAME:TAG with * and ?, for example ghcr.io/org/*"


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """Image policy of a pool. Without patterns, every image is allowed."""

    mode: str = ALLOW
    patterns: tuple[str, ...] = ()

    @property
    def is_restrictive(self) -> bool:
        return self.mode != ALLOW or bool(self.patterns)

    def rejection_reason(self, pool: str, image: str | None) -> str:
        """Return a clause that says why the pool rejects a workload with this image, or "".

        `image` is None for a workload without an image.
        """
        if image is None:
            return f"pool {pool} only runs workloads with a container image" if self.mode == REQUIRE else ""
        if self.mode == FORBID:
            return f"the image policy of pool {pool} forbids container images"
        if not self.patterns or any(matches(pattern, parse_image(image)) for pattern in self.patterns):
            return ""
        return f"the image policy of pool {pool} only accepts {' or '.join(self.patterns)}"


def matches(pattern: str, image: ImageReference) -> bool:
    """Return whether an image reference matches a pattern with the wildcards `*` and `?`.

    `*` matches within the registry or the name. A pattern without a tag or digest matches every tag and
    digest. A pattern with a tag never matches a reference by digest.
    """
    registry, _, rest = pattern.partition("/")
    text = image.repository
    if ":" in rest or "@" in rest:
        text += f"@{image.digest}" if image.digest else f":{image.tag}"
    return _matches_glob(image.registry, registry) and _matches_glob(text, rest)


def _matches_glob(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def read_policy(stored: Mapping[str, Any]) -> ImagePolicy:
    return ImagePolicy(stored.get("mode", ALLOW), tuple(stored.get("patterns", ())))


def normalize_policy(value: object) -> dict[str, Any]:
    """Return the image policy in the stored format. It is empty if nothing is restricted. Raises Invalid."""
    if value is None:
        return {}
    problems = list(_policy_problems(value))
    if problems or not isinstance(value, Mapping):
        raise Invalid(problems)
    policy = read_policy({**value, "patterns": dict.fromkeys(value.get("patterns") or ())})
    return {"mode": policy.mode, "patterns": list(policy.patterns)} if policy.is_restrictive else {}


def _policy_problems(value: object) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem("image_policy", "is not a mapping", format_value(value), ", ".join(KEYS))
        return
    for key in value:
        if key not in KEYS:
            yield Problem(f"image_policy.{key}", "unknown key", format_value(key), suggest(str(key), KEYS))
    mode, patterns = value.get("mode", ALLOW), value.get("patterns")
    if not isinstance(mode, str) or mode not in MODES:
        yield Problem(
            "image_policy.mode", "is not a valid mode", format_value(mode), suggest(str(mode), MODES)
        )
    if patterns is None:
        return
    if not isinstance(patterns, list | tuple):
        received = format_value(patterns)
        yield Problem("image_policy.patterns", "is not a list", received, "[] for all images, or patterns")
        return
    if len(patterns) > PATTERNS_MAX:
        received = str(len(patterns))
        yield Problem("image_policy.patterns", "has too many entries", received, f"at most {PATTERNS_MAX}")
    if patterns and mode == FORBID:
        received = format_value(list(patterns))
        yield Problem("image_policy.patterns", "cannot be combined with forbid", received, "no patterns")
    for index, pattern in enumerate(patterns):
        if not _is_pattern(pattern):
            path = f"image_policy.patterns[{index}]"
            yield Problem(path, "is not a valid image pattern", format_value(pattern), PATTERN_ALLOWED)


def _is_pattern(pattern: object) -> bool:
    if not isinstance(pattern, str) or not 0 < len(pattern) <= PATTERN_MAX:
        return False
    registry, _, rest = pattern.partition("/")
    plain = pattern.isascii() and pattern.isprintable() and " " not in pattern and "://" not in pattern
    return plain and bool(registry) and bool(rest)
