"""Test the path of code from Git servers to pods in a running installation with real processes."""

import os
import signal
import threading
from pathlib import Path

import pytest

from berth.client import Client
from tests.code.git_server import HttpsServer, Repository
from tests.journeys.command import Terminal, sign_in
from tests.journeys.conftest import GitServers
from tests.journeys.guide import guide_examples, run_as_written
from tests.journeys.installation import Installation, until
from tests.pools.ssh.sshd import needs_sshd

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def repository(git_servers: GitServers) -> Repository:
    git_servers.repository.commit({"train.py": "print('loss 0.5')\n"})
    return git_servers.repository


@pytest.fixture(scope="module")
def https(git_servers: GitServers, repository: Repository) -> HttpsServer:
    return git_servers.https


@pytest.fixture(scope="module")
def admin(shared_berth: Installation, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return sign_in(shared_berth, "admin", tmp_path_factory.mktemp("admin") / "config")


def log_of(client: Client, name: str) -> str:
    workload = client.workloads.find(name)
    until(lambda: client.workloads.get(workload.id).phase in ("completed", "failed"))
    return client.workloads.log(workload.id).data.decode()


@pytest.mark.heavy
def test_first_git_example_in_the_guide_runs_the_tagged_code(
    admin: Terminal, https: HttpsServer, repository: Repository, tmp_path: Path
) -> None:
    (repository.checkout / "train.py").write_text("import os; print('tagged', os.path.exists('.git'))\n")
    commit = repository.commit({}, "Tag")
    repository.tag("v2")
    example = guide_examples("Use a Git repository")[0]
    assert "https://git.example.org/vision/train.git" in example
    output = run_as_written(
        admin, example.replace("https://git.example.org/vision/train.git", https.url()), tmp_path
    )
    assert "tagged False" in output
    workload = admin.client().workloads.find("release")
    assert workload.code is not None
    assert workload.code.git is not None
    assert (workload.code.commit, workload.code.git.url, workload.code.git.ref) == (commit, https.url(), "v2")
    described = admin.berth("describe", "release")
    assert f"{commit[:10]} from {https.url()}, 1 file" in " ".join(described.split())


@pytest.mark.heavy
@needs_sshd
def test_second_git_example_in_the_guide_uses_a_new_deploy_key(
    admin: Terminal, git_servers: GitServers, repository: Repository, tmp_path: Path
) -> None:
    ssh = git_servers.ssh
    assert ssh is not None
    generate, store, scan, submit = guide_examples("Use a Git repository")[1].splitlines()
    run_as_written(admin, generate, tmp_path)
    keys = ssh.directory / "authorized_keys"
    keys.write_text(keys.read_text() + (tmp_path / "deploy-key.pub").read_text())
    run_as_written(admin, store, tmp_path)
    assert scan == "ssh-keyscan -t ed25519 git.example.org"
    address = f"ssh://root@{ssh.address}:{ssh.port}{repository.path}"
    submit = submit.replace("git@git.example.org:vision/train.git", address)
    submit = submit.replace("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI...", ssh.host_key)
    run_as_written(admin, submit.replace("python train.py", "sh -c 'env; cat train.py'"), tmp_path)
    log = log_of(admin.client(), "private")
    assert "print(" in log
    assert "PRIVATE KEY" not in log
    uses = admin.berth("secret", "uses", "deploy-key", "--project", "vision")
    assert "private" in uses


@pytest.mark.heavy
def test_rejected_addresses_and_failed_fetches_are_reported_with_a_remedy(
    admin: Terminal, https: HttpsServer
) -> None:
    command = ("submit", "-n", "bad", "-p", "vision", "--gpu", "0")
    rejected = admin.rejected(*command, "--git", "https://127.0.0.1/x.git", "--", "true")
    assert "BERTH_GIT_HOSTS" in rejected
    unknown = admin.rejected(*command, "--git", https.url(), "--git-secret", "deploy-kex", "--", "true")
    assert "code.git.secret" in unknown
    assert "is not a secret of vision" in unknown
    admin.berth(*command, "--git", https.url(), "--git-ref", "none", "--", "true")
    client = admin.client()
    workload = client.workloads.find("bad")
    until(lambda: client.workloads.get(workload.id).phase == "failed")
    assert "has no branch or tag none" in client.workloads.get(workload.id).message


@pytest.mark.heavy
def test_private_repository_is_fetched_with_a_personal_secret(admin: Terminal, https: HttpsServer) -> None:
    https.token = "token-of-the-admin"
    command = ("submit", "-p", "vision", "--gpu", "0", "--git", https.url(), "--git-secret")
    script = ("--", "cat", "train.py")
    try:
        admin.berth("secret", "set", "mine", "--personal", stdin=https.token)
        admin.berth(*command, "personal/mine", "-n", "own-secret", *script)
        assert "print(" in log_of(admin.client(), "own-secret")
        assert "own-secret" in admin.berth("secret", "uses", "mine", "--personal")
        rejected = admin.rejected(*command, "mine", "-n", "other", *script)
        assert "--git-secret personal/NAME" in rejected

        admin.berth("secret", "set", "mine", "--personal", stdin="expired-token")
        admin.berth(*command, "personal/mine", "-n", "expired", *script)
        client = admin.client()
        until(lambda: client.workloads.find("expired").phase == "failed")
        message = client.workloads.find("expired").message
        assert "Check that the secret personal/mine is valid and may read the repository" in message
        assert "expired-token" not in message
    finally:
        https.token = ""


@pytest.mark.heavy
def test_killed_fetch_restarts_and_leaves_no_files(
    shared_berth: Installation, admin: Terminal, https: HttpsServer
) -> None:
    berth = shared_berth
    reached, release = threading.Event(), threading.Event()

    def stall() -> None:
        reached.set()
        release.wait(300)

    https.on_request = stall
    https.token = "token-of-the-robot"
    admin.berth("secret", "set", "robot", "--project", "vision", stdin=https.token)
    admin.berth("submit", "-n", "killed", "-p", "vision", "--gpu", "0", "--git", https.url(),
                "--git-secret", "robot", "--", "python", "train.py")  # fmt: skip
    assert reached.wait(300)
    assert [line for line in berth.processes().values() if "git" in line and "ls-remote" in line]
    https.on_request = lambda: None
    os.kill(berth.children()["scheduler"], signal.SIGKILL)
    until(lambda: not [line for line in berth.processes().values() if "ls-remote" in line])
    release.set()
    log_of(admin.client(), "killed")
    assert admin.client().workloads.find("killed").phase == "completed"
    until(lambda: not list((berth.home / "git").glob("*")))
    shared = Path(f"/dev/shm/berth-git-{os.getuid()}")
    until(lambda: not list(shared.glob("*/*")))
    https.token = ""
