"""Test code uploads to S3 that are interrupted on either side."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, InstallContext, until
from tests.volumes.object_store import s3_server

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
FILES, FILE_BYTES = 24, 4 * 2**20  # a file is one part of an upload


@pytest.fixture(scope="module")
def berth(installing: InstallContext) -> Iterator[Installation]:
    """Run an installation that stores code in S3."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    create = "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1]).create_bucket(Bucket='berth')"
    with s3_server() as address:
        subprocess.run([sys.executable, "-c", create, address], env={**os.environ, **keys}, check=True)
        with installing(
            BERTH_CODE_STORE="s3://berth/code", BERTH_CODE_S3_ENDPOINT=address, **keys
        ) as installation:
            yield installation


@pytest.fixture
def dave(berth: Installation, tmp_path: Path) -> Terminal:
    return sign_in(berth, "dave", tmp_path / "dave")


def start_submit(dave: Terminal, directory: Path) -> "subprocess.Popen[str]":
    env = {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}
    env |= {
        "XDG_CONFIG_HOME": str(dave.config),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
    }
    words = (
        "submit",
        "-n",
        "large",
        "-p",
        "vision",
        "--code",
        str(directory),
        "--",
        "sh",
        "-c",
        "cat * | sha256sum",
    )
    return subprocess.Popen(
        [sys.executable, "-m", "berth.cli.main", *words], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_upload_resumes_after_the_command_and_the_server_were_killed(
    berth: Installation, dave: Terminal, tmp_path: Path
) -> None:
    directory = tmp_path / "code"
    directory.mkdir()
    whole = hashlib.sha256()
    for number in range(FILES):
        content = os.urandom(FILE_BYTES)
        (directory / f"{number:02}.bin").write_bytes(content)
        whole.update(content)
    client = dave.client()

    def stored() -> int:
        return client.code.get("vision").stored

    command = start_submit(dave, directory)
    until(lambda: stored() > 0 or command.poll() is not None)
    command.send_signal(signal.SIGKILL)
    command.wait()
    resumed_at = stored()
    assert 0 < resumed_at < FILES * FILE_BYTES, "the command was killed during the upload"
    command = start_submit(dave, directory)
    until(lambda: stored() > resumed_at or command.poll() is not None)
    os.kill(berth.children()["web"], signal.SIGKILL)
    output, _ = command.communicate(timeout=300)
    assert command.returncode == 0, output
    workload = client.workloads.find("large")
    until(lambda: client.workloads.get(workload.id).phase in ("completed", "failed"))
    log = client.workloads.log(workload.id).data.decode()
    assert log.split()[0] == whole.hexdigest(), log
    assert 0 <= stored() - FILES * FILE_BYTES < FILE_BYTES, "except for the list of files, nothing is added"
