"""Tests that secrets reach a pod with or without an enclosure, and that none are left behind."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.runtimes import pod_dir
from pools.runtimes.base import PodCause, PodSpec
from pools.runtimes.pod_dir import PodDir
from pools.runtimes.shim.processes import process_ids
from pools.runtimes.wire import decode_pod_spec, encode_pod_spec
from tests.contracts.pods import LocalStage, ended, files_containing, kill, order, running

PASSWORD, KEY = "password-in-a-variable", "first line\nsecond = line\n"
SECRETS = {"secret_env": {"PASSWORD": PASSWORD}, "secret_files": {"key.pem": KEY}}
SHOW = """
echo "$PASSWORD"
cat "$BERTH_SECRETS_DIR/key.pem"
stat -c '%a %U' "$BERTH_SECRETS_DIR/key.pem"
id -un
"""


@pytest.fixture(params=["auto", "off"])
def stage(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalStage]:
    monkeypatch.setenv("BERTH_ISOLATION", request.param)
    stage = LocalStage(tmp_path / "home" / "run")
    yield stage
    stage.sweep()
    assert not leftovers(stage)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStage]:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    stage = LocalStage(tmp_path / "home" / "run")
    yield stage
    stage.sweep()


def secret_order(pod_id: str, script: str) -> PodSpec:
    return order(pod_id, "sh", "-c", script, **SECRETS)


def long_order(stage: LocalStage, pod_id: str = "p-1") -> PodSpec:
    return secret_order(pod_id, stage.SHELL)


def leftovers(stage: LocalStage) -> list[Path]:
    """Return the secret directories of the stage's pods that still exist."""
    pods = stage.root / "pods"
    return [*pod_dir.MEMORY.glob(f"{pod_dir.secrets_prefix(pods)}*"), *pods.glob("*/secrets")]


def read_log(stage: LocalStage, pod_id: str = "p-1") -> str:
    return str(stage.runtime.read_log(pod_id, 0, 10_000).data.decode())


@pytest.mark.every_case
def test_pod_reads_its_secrets_from_a_variable_and_a_file(stage: LocalStage) -> None:
    stage.runtime.start(secret_order("p-1", SHOW))
    assert ended(stage.runtime, "p-1").exit_code == 0
    password, *key, mode, user = read_log(stage).splitlines()
    assert (password, "\n".join(key) + "\n") == (PASSWORD, KEY)
    assert mode == f"400 {user}", "only the pod's user may read the file"


def test_neither_the_records_nor_a_command_line_contains_a_secret(stage: LocalStage) -> None:
    stage.runtime.start(long_order(stage))
    running(stage.runtime, "p-1")
    assert not files_containing(stage.root, PASSWORD, "second = line")
    for pid in process_ids():
        try:
            assert PASSWORD.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    assert not any((home / "record").exists() for home in leftovers(stage)), (
        "the shim deletes it at its start"
    )
    assert PASSWORD not in repr(long_order(stage)) and KEY not in repr(long_order(stage))


def test_secrets_are_deleted_when_their_pod_ends(stage: LocalStage) -> None:
    stage.runtime.start(long_order(stage))
    running(stage.runtime, "p-1")
    stage.end_pod("p-1", 0)
    ended(stage.runtime, "p-1")
    assert not leftovers(stage)


def test_killed_shim_leaves_no_secret_behind(stage: LocalStage) -> None:
    stage.runtime.start(long_order(stage))
    running(stage.runtime, "p-1")
    shim = stage.runtime._pod_dir("p-1").shim_pid()
    kill(shim)
    assert ended(stage.runtime, "p-1").cause is PodCause.LOST
    assert not leftovers(stage)


def test_shim_receives_the_secrets_again_if_it_was_killed_before_the_start(plain: LocalStage) -> None:
    # The first shim has read and deleted the record; Berth then starts the pod again.
    stage = plain
    stage.runtime._spawn_shim = lambda pod_id, pod: pod.secrets.read_and_delete()
    stage.runtime.start(secret_order("p-1", SHOW))
    assert not any(home.joinpath("record").exists() for home in leftovers(stage))
    stage.restart().start(secret_order("p-1", SHOW))
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert read_log(stage).startswith(PASSWORD)


def test_pod_with_missing_secrets_fails_to_start(plain: LocalStage) -> None:
    stage = plain
    spawn = stage.runtime._spawn_shim

    def spawn_without_secrets(pod_id: str, pod: PodDir) -> None:
        pod.secrets.delete()
        spawn(pod_id, pod)

    stage.runtime._spawn_shim = spawn_without_secrets
    stage.runtime.start(secret_order("p-1", SHOW))
    report = ended(stage.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert report.message == "the pod's secrets are missing; another process has deleted them"


def test_pod_stopped_before_its_start_leaves_no_secret_behind(plain: LocalStage) -> None:
    stage = plain
    stage.runtime._spawn_shim = lambda pod_id, pod: None
    stage.runtime.start(long_order(stage))
    assert [home.stat().st_mode & 0o777 for home in leftovers(stage)] == [0o700]
    assert [path.stat().st_mode & 0o777 for home in leftovers(stage) for path in home.iterdir()] == [0o600]
    stage.runtime.stop("p-1", 0)
    assert ended(stage.runtime, "p-1").cause is PodCause.STOPPED
    assert not leftovers(stage)


def test_secrets_of_a_pod_without_a_directory_are_deleted_when_the_runtime_starts(plain: LocalStage) -> None:
    stage = plain
    stage.runtime._pod_dir("p-9").secrets.store({"PASSWORD": PASSWORD}, {})
    assert leftovers(stage)
    stage.restart()
    assert not leftovers(stage)


def test_secret_directory_of_another_user_is_not_used(plain: LocalStage) -> None:
    stage = plain
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    home = Path(stage.runtime._pod_dir("p-1").secrets.home)
    home.mkdir(mode=0o700)
    try:
        os.chown(home, 65533, 65533)
        with pytest.raises(Exception, match="not a private directory"):
            stage.runtime.start(long_order(stage))
        assert not list(home.iterdir())
    finally:
        home.rmdir()
        stage.runtime.stop("p-1", 0)


def test_secrets_are_stored_in_the_pod_directory_if_there_is_no_tmpfs(
    plain: LocalStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = plain
    monkeypatch.setattr(pod_dir, "MEMORY", Path("/proc/no-such-directory"))
    stage.runtime.start(secret_order("p-1", SHOW))
    assert ended(stage.runtime, "p-1").exit_code == 0
    assert read_log(stage).startswith(PASSWORD)
    assert not leftovers(stage)


@pytest.mark.parametrize("name", ["", "..", "../key", ".key", "a/b"])
def test_secret_file_name_cannot_contain_a_path(plain: LocalStage, name: str) -> None:
    plain.runtime.start(order("p-1", "true", secret_files={name: KEY}))
    report = ended(plain.runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert report.message == "names of secret files must be plain file names"


def test_error_does_not_contain_the_secret(plain: LocalStage) -> None:
    plain.runtime.start(order("p-1", "true", secret_env={"PASSWORD": f"{PASSWORD}\0"}))
    assert ended(plain.runtime, "p-1").message == "secrets must not contain NUL"


def test_secrets_are_sent_to_node_agents() -> None:
    sent = secret_order("p-1", SHOW)
    assert decode_pod_spec(encode_pod_spec(sent)) == sent


def test_pod_without_secrets_has_no_secret_directory(stage: LocalStage) -> None:
    stage.runtime.start(order("p-1", "sh", "-c", 'echo "[$BERTH_SECRETS_DIR]"; ls -d /run/secrets'))
    ended(stage.runtime, "p-1")
    assert "[]" in read_log(stage) and "No such file" in read_log(stage)
