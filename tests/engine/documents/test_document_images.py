"""Tests for the container image that a workload document names."""

from typing import Any

import pytest

from berth.core.spec import SpecError, parse_workload
from berth.core.values.images import parse_image

DIGEST = "sha256:" + "0123456789abcdef" * 4


def document(image: str | None = None, **more: Any) -> dict[str, Any]:
    values = {"name": "train", "command": "train", "roles": [{}], **more}
    return values if image is None else values | {"image": image}


def find_problem(data: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as rejected:
        parse_workload(data)
    (problem,) = rejected.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("image", "name", "tag", "digest"),
    [
        ("docker.io/library/python:3.12", "docker.io/library/python", "3.12", ""),
        ("docker.io/library/python", "docker.io/library/python", "latest", ""),
        ("localhost/train:v1_a.B-2", "localhost/train", "v1_a.B-2", ""),
        ("127.0.0.1:5000/a/b-c__d.e", "127.0.0.1:5000/a/b-c__d.e", "latest", ""),
        ("[::1]:5000/train:1", "[::1]:5000/train", "1", ""),
        (f"ghcr.io/org/train@{DIGEST}", "ghcr.io/org/train", "", DIGEST),
        (f"ghcr.io/org/train:1@{DIGEST}", "ghcr.io/org/train", "1", DIGEST),
    ],
)
def test_image_reference_has_a_registry_and_a_tag_or_digest(
    image: str, name: str, tag: str, digest: str
) -> None:
    reference = parse_image(image)
    assert (reference.name, reference.tag, reference.digest) == (name, tag, digest)
    spec = parse_workload(document(image))
    assert spec.document()["image"] == image, "the document keeps the reference as written"


@pytest.mark.parametrize(
    ("image", "message", "suggestion"),
    [
        ("ubuntu", "does not specify a registry", "docker.io/library/ubuntu:latest"),
        ("org/train:1", "does not specify a registry", "docker.io/org/train:1"),
        ("ghcr.io/Org/Train:V1", "contains upper-case letters", "ghcr.io/org/train:V1"),
        ("ghcr.io/org/my train:1", "contains a space", "ghcr.io/org/mytrain:1"),
        ("ghcr.io/org/train:1\n", "contains a space", "ghcr.io/org/train:1"),
        ("https://ghcr.io/org/train:1", "begins with a URL scheme", "ghcr.io/org/train:1"),
        ("docker://ghcr.io/org/train:1", "begins with a URL scheme", "ghcr.io/org/train:1"),
        ("ghcr.io/org/train:", "has an empty tag", "ghcr.io/org/train:latest"),
        ("ghcr.io/org/train@", "has an empty digest", "ghcr.io/org/train:latest"),
        (f"ghcr.io/org/train@{DIGEST.upper()}", "has upper-case letters in its digest",
         f"ghcr.io/org/train@{DIGEST}"),
    ],
)  # fmt: skip
def test_error_for_a_misspelled_image_suggests_the_nearest_spelling(
    image: str, message: str, suggestion: str
) -> None:
    problem = find_problem(document(image))
    assert problem.startswith(f"image: {message}; received ")
    assert problem.endswith(f". Did you mean `{suggestion}`?")


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (f"ghcr.io/org/train@{DIGEST[:-1]}", "has a digest of 63 digits instead of 64"),
        (f"ghcr.io/org/train@{DIGEST[:-1]}g", "has a digest with characters other than hexadecimal digits"),
        ("ghcr.io/org/train@md5:ab", "has a digest that is not sha256"),
        ("ghcr.io/org/train:a/b", "has an invalid tag"),
        ("ghcr.io/org//train", "has an invalid repository name"),
        ("ghcr.io:99999/org/train", "has an invalid registry"),
        ("-ghcr.io/org/train", "has an invalid registry"),
        ("ghcr.io/org/tr\u00e4in", "has an invalid repository name"),
    ],
)
def test_error_for_an_invalid_image_states_the_allowed_form(image: str, message: str) -> None:
    problem = find_problem(document(image))
    assert problem.startswith(f"image: {message}; received ")
    assert "; allowed: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST" in problem


def test_images_are_pulled_by_default_only_if_missing() -> None:
    assert parse_workload(document("ghcr.io/train")).image_pull_policy == "if_not_present"
    spec = parse_workload(document("ghcr.io/train", image_pull_policy="always"))
    assert spec.document()["image_pull_policy"] == "always"


@pytest.mark.parametrize(
    ("policy", "advice"),
    [
        ("IfNotPresent", "Did you mean `if_not_present`?"),
        ("Always", "Did you mean `always`?"),
        ("Never", "Did you mean `never`?"),
        ("sometimes", "allowed: if_not_present, always, never"),
    ],
)
def test_misspelled_pull_policy_is_rejected(policy: str, advice: str) -> None:
    problem = find_problem(document("ghcr.io/train", image_pull_policy=policy))
    assert problem.startswith("image_pull_policy: is not a valid pull policy")
    assert problem.endswith(advice)


def test_pull_policy_requires_an_image() -> None:
    assert "image_pull_policy: requires an image" in find_problem(document(image_pull_policy="always"))
