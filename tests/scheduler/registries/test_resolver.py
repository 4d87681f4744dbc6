"""Tests for the scheduler's background lookups of image tags."""

import selectors
import uuid
from collections.abc import Mapping

from berth.core.values.images import parse_image
from scheduler.registries.base import RegistryErrorKind, Resolution, RunKey
from scheduler.registries.http_client import RegistryAccess
from scheduler.registries.resolver import LOOKUPS_PER_REGISTRY, HttpResolver
from tests.scheduler.registries.tiny_registry import running_tiny_registry

DIGEST = f"sha256:{'a' * 64}"


def wait_for_results(resolver: HttpResolver, *keys: RunKey) -> Mapping[RunKey, Resolution]:
    with selectors.DefaultSelector() as selector:
        for file in resolver.wake_fds():
            selector.register(file, selectors.EVENT_READ)
        assert selector.select(30)
    resolver.clear_wakeups()
    return resolver.take_results(keys)


def test_hanging_registry_does_not_delay_other_registries() -> None:
    with running_tiny_registry() as hanging, running_tiny_registry() as other:
        resolver = HttpResolver(RegistryAccess(seconds=600))
        stuck = [(uuid.uuid4(), run) for run in range(LOOKUPS_PER_REGISTRY + 1)]
        for key in stuck:
            resolver.request(key, parse_image(hanging.image("hangs:1")), "")
        key = (uuid.uuid4(), 1)
        resolver.request(key, parse_image(other.image("train:1")), "")
        assert wait_for_results(resolver, key, *stuck) == {key: Resolution(DIGEST)}


def test_digest_lookup_result_is_returned_once_and_only_to_its_run() -> None:
    with running_tiny_registry() as registry:
        resolver = HttpResolver()
        key = (uuid.uuid4(), 1)
        image = parse_image(registry.image("train:1"))
        for _ in range(3):
            resolver.request(key, image, "")
        assert wait_for_results(resolver, key) == {key: Resolution(DIGEST)}
        assert resolver.take_results([key]) == {}
        assert len(registry.requests) == 1
        resolver.request(key, image, "")
        assert wait_for_results(resolver, (key[0], 2)) == {}
        assert resolver.take_results([key]) == {}


def test_digest_lookup_with_invalid_credentials_fails() -> None:
    with running_tiny_registry() as registry:
        resolver = HttpResolver()
        key = (uuid.uuid4(), 1)
        resolver.request(key, parse_image(registry.image("train:1")), "no JSON")
        error = wait_for_results(resolver, key)[key].error
        assert error is not None
        assert error.fault == RegistryErrorKind.FAILED
