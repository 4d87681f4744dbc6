"""Fixtures for image tests: a registry, images and a runtime, shared because starting one takes a second."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.runtimes.local import LocalRuntime
from tests.images.registry import Registry, missing_programs, running_registry
from tests.images.stage import ImageStage, image_home

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="session")
def first_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRuntime]:
    with pytest.MonkeyPatch.context() as patch, image_home(tmp_path_factory.mktemp("images")) as runtime:
        patch.setenv("BERTH_IMAGES", "auto")
        support = runtime._enclosures.images.support
        if not support.version:
            assert support.obstacle
            pytest.skip(support.obstacle)
        yield runtime


@pytest.fixture(scope="session")
def busybox(registry: Registry) -> str:
    return registry.push("team/busybox", Env=["PATH=/bin", "COLOR=blue"])


@pytest.fixture
def stage(first_runtime: LocalRuntime, registry: Registry) -> Iterator[ImageStage]:
    root = first_runtime.root.parent / f"run-{os.getpid()}-{next(_numbers)}"
    stage = ImageStage(Path(root), registry, first_runtime)
    yield stage
    stage.sweep()
