"""Tests for the rules of a pool's image policy."""

from typing import Any

import pytest

from berth.core.errors import Invalid
from berth.core.values.images import parse_image
from pools.engine.image_policy import ImagePolicy, matches, normalize_policy

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("ghcr.io/org/*", "ghcr.io/org/train:1"),
        ("ghcr.io/org/*", "ghcr.io/org/team/train:1"),
        ("ghcr.io/org/*", f"ghcr.io/org/train@{DIGEST}"),
        ("*.example.org/*", "registry.example.org/train"),
        ("ghcr.io/org/train:v?", "ghcr.io/org/train:v1"),
        ("ghcr.io/org/train:latest", "ghcr.io/org/train"),
        ("ghcr.io/org/train@*", f"ghcr.io/org/train:1@{DIGEST}"),
        ("*/*", "localhost:5000/train"),
    ],
)
def test_image_pattern_matches_an_image(pattern: str, image: str) -> None:
    assert matches(pattern, parse_image(image))


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("ghcr.io/org/*", "ghcr.io/organization/train"),
        ("ghcr.io/org", "ghcr.io/org/train"),
        ("*.example.org/*", "evil.example.com/x.example.org/train"),
        ("*/org/train", "evil.example.com/a/org/train"),
        ("ghcr.io/org/train:v?", "ghcr.io/org/train:v10"),
        ("ghcr.io/org/train:v1", f"ghcr.io/org/train:v1@{DIGEST}"),
        ("ghcr.io/org/train@*", "ghcr.io/org/train:1"),
        ("ghcr.io/org/[a-z]*", "ghcr.io/org/train"),
    ],
)
def test_image_pattern_does_not_match_a_similar_image(pattern: str, image: str) -> None:
    assert not matches(pattern, parse_image(image))


@pytest.mark.parametrize(
    ("policy", "image", "rejection"),
    [
        (ImagePolicy(), None, ""),
        (ImagePolicy(), "ghcr.io/org/train", ""),
        (ImagePolicy("forbid"), None, ""),
        (ImagePolicy("forbid"), "ghcr.io/a", "the image policy of pool gpu forbids container images"),
        (ImagePolicy("require"), None, "pool gpu only runs workloads with a container image"),
        (ImagePolicy("require"), "ghcr.io/a", ""),
        (ImagePolicy("allow", ("ghcr.io/b", "quay.io/*")), None, ""),
        (ImagePolicy("allow", ("ghcr.io/b", "quay.io/*")), "quay.io/c", ""),
        (ImagePolicy("require", ("ghcr.io/b", "quay.io/*")), "ghcr.io/a",
         "the image policy of pool gpu only accepts ghcr.io/b or quay.io/*"),
    ],
)  # fmt: skip
def test_image_rejected_by_a_policy_is_reported_with_the_reason(
    policy: ImagePolicy, image: str | None, rejection: str
) -> None:
    assert policy.rejection_reason("gpu", image) == rejection


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, {}),
        ({}, {}),
        ({"mode": "allow", "patterns": []}, {}),
        ({"patterns": ["ghcr.io/*", "ghcr.io/*"]}, {"mode": "allow", "patterns": ["ghcr.io/*"]}),
        ({"mode": "forbid", "patterns": None}, {"mode": "forbid", "patterns": []}),
    ],
)
def test_policy_is_stored_in_normalized_form(value: object, stored: dict[str, Any]) -> None:
    assert normalize_policy(value) == stored


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (["forbid"], "image_policy: is not a mapping; received ['forbid']; allowed: mode, patterns"),
        ({"mode": 3}, "image_policy.mode: is not a valid mode; received 3; allowed: allow, require, forbid"),
        ({"mode": "forbit"},
         "image_policy.mode: is not a valid mode; received 'forbit'. Did you mean `forbid`?"),
        ({"pattern": []}, "image_policy.pattern: unknown key; received 'pattern'. Did you mean `patterns`?"),
        ({"patterns": "a/*"},
         "image_policy.patterns: is not a list; received 'a/*'; allowed: [] for all images, or patterns"),
        ({"mode": "forbid", "patterns": ["a/*"]},
         "image_policy.patterns: cannot be combined with forbid; received ['a/*']; allowed: no patterns"),
        ({"patterns": ["a/*"] * 101},
         "image_policy.patterns: has too many entries; received 101; allowed: at most 100"),
    ],
)  # fmt: skip
def test_error_for_an_invalid_policy_states_what_is_allowed(value: object, problem: str) -> None:
    with pytest.raises(Invalid) as rejected:
        normalize_policy(value)
    assert [str(each) for each in rejected.value.problems] == [problem]


@pytest.mark.parametrize(
    "pattern", ["train", "", "/train", "ghcr.io/", "https://ghcr.io/a", "ghcr.io/a b", 3]
)
def test_image_pattern_requires_a_registry_and_a_name(pattern: object) -> None:
    with pytest.raises(Invalid) as rejected:
        normalize_policy({"patterns": ["ghcr.io/*", pattern]})
    (problem,) = rejected.value.problems
    assert (problem.path, problem.message) == ("image_policy.patterns[1]", "is not a valid image pattern")
