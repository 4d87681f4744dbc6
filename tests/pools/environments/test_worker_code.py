"""Tests of the code that Berth sends to workers."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pools.environments.code import worker_code

COPIES = ("berth.client.sync.workloads.copies", "berth.client.aio.workloads.copies")


@pytest.mark.parametrize("module", COPIES)
def test_workers_can_copy_files_with_the_client(module: str, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(worker_code())) as archive:
        archive.extractall(tmp_path, filter="data")
    program = f"import {module} as copies; print(copies.Packer.__module__, copies.__file__)"
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert output.split() == [
        "pools.runtimes.shim.channels.packing", str(tmp_path / f"{module.replace('.', '/')}.py"),
    ]  # fmt: skip
