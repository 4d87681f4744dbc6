"""Tests for resolving image tags to digests at a real registry with authentication."""

import asyncio
from collections.abc import Iterator

import pytest

from berth.core.values.images import parse_image
from scheduler.registries.base import RegistryError, RegistryErrorKind
from scheduler.registries.client import RegistryClient
from scheduler.registries.http_client import RegistryAccess
from tests.images.registry import Registry, missing_programs, running_registry

INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if "docker-registry" in missing_programs():
        pytest.skip("docker-registry is not installed")
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def look_up(image: str, auth: str = "") -> str:
    return asyncio.run(RegistryClient(RegistryAccess()).fetch_digest(parse_image(image), auth))


def find_error(image: str, auth: str = "") -> RegistryError:
    with pytest.raises(RegistryError) as failed:
        look_up(image, auth)
    return failed.value


def test_tag_is_resolved_to_its_digest(registry: Registry) -> None:
    image = f"{registry.address}/team/train:1"
    for version in ("1", "2"):
        pushed = registry.push("team/train", layers=[], tag="1", Env=[f"VERSION={version}"])
        assert f"{registry.address}/team/train@{look_up(image, registry.auth)}" == pushed


def test_multi_arch_tag_resolves_to_its_index(registry: Registry) -> None:
    first = registry.push("team/multi", layers=[])
    index = registry.push_index("team/multi", {"amd64": first})
    manifest = registry.request("GET", f"team/multi/manifests/{index.partition('@')[2]}", accept=INDEX).read()
    registry.request("PUT", "team/multi/manifests/all", manifest, kind=INDEX)
    digest = look_up(f"{registry.address}/team/multi:all", registry.auth)
    assert f"{registry.address}/team/multi@{digest}" == index != first


def test_missing_and_wrong_credentials_cause_different_errors(registry: Registry) -> None:
    image = f"{registry.address}/team/train:1"
    anonymous, wrong = find_error(image), find_error(image, registry.auth_for("wrong"))
    assert anonymous.fault == wrong.fault == RegistryErrorKind.UNAUTHORIZED
    assert "without credentials. Set a registry secret" in str(anonymous)
    assert "to user puller. Check the registry secret" in str(wrong)
    assert "wrong" not in str(wrong)


def test_error_names_the_missing_image(registry: Registry) -> None:
    error = find_error(f"{registry.address}/team/nothing:1", registry.auth)
    assert (error.fault, error.is_permanent) == (RegistryErrorKind.NOT_FOUND, True)
    assert str(error) == f"Registry {registry.address} has no image team/nothing:1."
