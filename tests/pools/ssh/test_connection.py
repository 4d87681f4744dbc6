"""Tests for connections to real SSH servers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pools.providers.ssh.connection import connect, scan_host_key
from pools.providers.ssh.endpoint import Endpoint, SshError, SshErrorKind, Timeouts, fingerprint
from tests.pools.ssh.sshd import SshServer, generate_key, needs_sshd, silent_server, ssh_server
from tests.support.ports import free_port

pytestmark = needs_sshd
SHORT = Timeouts(connect=0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd"), "127.0.0.2") as running:
        yield running


async def rejection(endpoint: Endpoint, timeouts: Timeouts | None = None) -> SshError:
    with pytest.raises(SshError) as raised:
        async with connect(endpoint, timeouts or Timeouts()):
            pass
    return raised.value


async def test_command_receives_its_input_and_returns_output_and_exit_code(server: SshServer) -> None:
    async with connect(server.endpoint()) as connection:
        finished = await connection.run("cat; echo problem >&2; exit 3", b"input")
    assert (finished.exit_code, finished.output, finished.errors) == (3, "input", "problem\n")
    with pytest.raises(SshError, match="trying failed with exit code 3: problem"):
        finished.raise_if_failed("trying")


async def test_uploaded_file_is_complete_and_private(server: SshServer, tmp_path: Path) -> None:
    path = tmp_path / "a file's name"
    content = bytes(range(256)) * 5000
    async with connect(server.endpoint()) as connection:
        await connection.upload(content, str(path))
        await connection.upload(content, str(path), mode=0o755)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o755
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


async def test_command_that_does_not_end_times_out(server: SshServer, tmp_path: Path) -> None:
    end = tmp_path / "end"
    async with connect(server.endpoint()) as connection:
        with pytest.raises(SshError, match=r"did not finish a command within 0\.2 s") as raised:
            await connection.run(f"while [ ! -e {end} ]; do sleep 0.1; done", timeout=0.2)
        assert raised.value.kind is SshErrorKind.TIMEOUT
        assert (await connection.run("echo usable")).output == "usable\n"
    end.touch()


@pytest.mark.heavy
async def test_endless_output_is_truncated(server: SshServer) -> None:
    async with connect(server.endpoint()) as connection:
        finished = await connection.run("head -c 3000000 /dev/zero")
    assert len(finished.output) == 1 << 20


async def test_changed_host_key_is_rejected_before_authentication(server: SshServer, tmp_path: Path) -> None:
    _, other = generate_key(tmp_path / "other")
    logins = server.log.count("Accepted publickey")
    error = await rejection(server.endpoint(host_key=other))
    assert error.kind is SshErrorKind.HOST_KEY
    assert fingerprint(server.host_key) in error.message
    assert fingerprint(other) in error.message
    assert error.presented == server.host_key
    assert server.log.count("Accepted publickey") == logins


@pytest.mark.heavy
async def test_server_without_a_key_of_the_pinned_type_is_rejected(server: SshServer, tmp_path: Path) -> None:
    _, other = generate_key(tmp_path / "other", "ecdsa")
    error = await rejection(server.endpoint(host_key=other))
    assert (error.kind, error.presented) == (SshErrorKind.HOST_KEY, server.host_key)


async def test_key_scan_returns_the_host_key_without_authentication(server: SshServer) -> None:
    scanned = await scan_host_key(server.endpoint(private_key="", host_key=""))
    assert scanned == server.host_key


async def test_connection_requires_a_pinned_key(server: SshServer) -> None:
    error = await rejection(server.endpoint(host_key=""))
    assert (error.kind, "is not pinned" in error.message) == (SshErrorKind.HOST_KEY, True)


async def test_error_explains_an_unusable_address_or_key(server: SshServer) -> None:
    error = await rejection(server.endpoint(host_key="ssh-foo AAAAB3NzaC1mb28AAAAEYWJjZA=="))
    assert error.kind is SshErrorKind.HOST_KEY
    assert error.message.startswith("the pinned host key of 127.0.0.2 port")
    for address in ("gpu..example.org", f"{'x' * 64}.example.org"):
        endpoint = replace(server.endpoint(), address=address)
        error = await rejection(endpoint)
        assert error.message == f"the address {address} cannot be resolved"
        with pytest.raises(SshError, match="cannot be resolved"):
            await scan_host_key(endpoint)


async def test_error_for_a_wrong_key_or_user_names_the_fingerprint(server: SshServer, tmp_path: Path) -> None:
    private, public = generate_key(tmp_path / "wrong")
    error = await rejection(server.endpoint(private_key=private))
    assert error.kind is SshErrorKind.LOGIN
    assert f"user root with the key {fingerprint(public)}" in error.message
    assert (await rejection(server.endpoint(user="not-a-user"))).kind is SshErrorKind.LOGIN


@pytest.mark.heavy
async def test_error_explains_an_unusable_private_key(server: SshServer, tmp_path: Path) -> None:
    protected, _ = generate_key(tmp_path / "protected", passphrase="a passphrase")
    for private_key, expected in ((protected, "ssh-keygen -p"), ("no key", "Use an OpenSSH key")):
        error = await rejection(server.endpoint(private_key=private_key))
        assert error.kind is SshErrorKind.KEY
        assert expected in error.message


async def test_unreachable_and_silent_servers_cause_different_errors(server: SshServer) -> None:
    closed = replace(server.endpoint(), port=free_port("127.0.0.2"))
    error = await rejection(closed)
    assert (error.kind, "Connect" in error.message) == (SshErrorKind.UNREACHABLE, True)
    unknown = await rejection(replace(server.endpoint(), address="no-such-host.invalid"))
    assert unknown.kind is SshErrorKind.UNREACHABLE
    with silent_server("127.0.0.2") as port:
        error = await rejection(replace(server.endpoint(), port=port), SHORT)
        assert (error.kind, error.message) == (
            SshErrorKind.TIMEOUT, f"127.0.0.2 port {port} did not respond within 0.5 s",
        )  # fmt: skip
        with pytest.raises(SshError, match="did not respond"):
            await scan_host_key(replace(server.endpoint(), port=port), SHORT)


async def test_connection_through_a_bastion_succeeds(server: SshServer, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "bastion", "127.0.0.3") as bastion:
        endpoint = server.endpoint(bastion=bastion.endpoint())
        async with connect(endpoint) as connection:
            output = (await connection.run("echo $SSH_CONNECTION")).output
        assert await scan_host_key(replace(endpoint, host_key="")) == server.host_key
        assert "Accepted publickey" in bastion.log
        _, other = generate_key(tmp_path / "other")
        rejected = await rejection(server.endpoint(bastion=bastion.endpoint(host_key=other)))
        assert rejected.kind is SshErrorKind.HOST_KEY
        assert bastion.address in rejected.message
        beyond = await rejection(replace(endpoint, port=free_port("127.0.0.2")))
        assert beyond.kind is SshErrorKind.UNREACHABLE
        assert f"through {bastion.address}" in beyond.message
    assert output.split()[2:] == [server.address, str(server.port)]
