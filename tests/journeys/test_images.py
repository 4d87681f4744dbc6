"""Test the use of a container image: build, push, submit, follow the logs and read errors."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.images.registry import (
    PASSWORD,
    USER,
    Registry,
    busybox_layer,
    layer,
    missing_programs,
    running_registry,
)
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, until
from tests.journeys.slow_proxy import slow_proxy

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.mark.heavy
def test_workload_runs_in_its_own_image(
    shared_berth: Installation, registry: Registry, tmp_path: Path
) -> None:
    carol, dave = (sign_in(shared_berth, name, tmp_path / name) for name in ("carol", "dave"))
    client = dave.client()
    large = layer({"data/weights": os.urandom(3_000_000)})
    program = layer({"app/train.sh": b"cat /app/version; wc -c < /data/weights; exit $1\n"})
    built = registry.push(
        "vision/train",
        [busybox_layer(), large, program, layer({"app/version": b"version 1\n"})],
        tag="1",
        Env=["PATH=/bin"],
        Entrypoint=["sh", "/app/train.sh"],
        Cmd=["7"],
    )
    digest = built.partition("@")[2]
    with slow_proxy(int(registry.address.partition(":")[2])) as proxy:
        image = f"{proxy.address}/vision/train:1"

        # Without credentials, the workload fails before a node pulls anything.
        dave.berth("submit", "-n", "locked", "--image", image)
        failed = until(lambda: ended(dave, "locked"))
        assert failed["phase"] == "failed"
        assert failed["reason"] == "ImageUnauthorized"
        assert "Set a registry secret in the project or the pool." in failed["message"]

        carol.berth(
            "secret",
            "set",
            "registry",
            "-p",
            "vision",
            "--registry",
            proxy.address,
            "-u",
            USER,
            stdin=PASSWORD,
        )
        dave.berth("submit", "-n", "train", "--image", image, "--image-pull-policy", "if_not_present")
        until(lambda: "pulling" in client.workloads.find("train").message)
        assert digest in dave.berth("describe", "train")
        proxy.released.set()
        described = until(lambda: ended(dave, "train"))
    assert (described["phase"], described["exit_code"]) == ("failed", 7), described["message"]
    (run,) = described["images"]
    assert (run["run"], run["image"], run["digest"]) == (1, image, digest)
    assert dave.berth("logs", "train") == "version 1\n3000000\n"


def ended(terminal: Terminal, name: str) -> dict[str, Any] | None:
    workload: dict[str, Any] = terminal.json("describe", name)
    return workload if workload["phase"] in ("completed", "failed", "cancelled") else None
