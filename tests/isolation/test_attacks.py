"""Tests for attacks by a hostile pod on Berth and on pods of another project, at every isolation level."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pools.runtimes.ray.scripts import node_code
from tests.images.registry import layer, missing_programs, running_registry
from tests.isolation import table

FOLDER = Path(__file__).parent
IS_ROOT = os.geteuid() == 0
ORDINARY_USER = 65533
# These directories exist on machines that have merged /bin and others into /usr.
PROGRAM_LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
SYSTEM_PYTHON = "/usr/bin/python3"  # other users cannot run a Python in root's home
WITHOUT_NAMESPACES = (
    "unshare", "--user", "--map-root-user",
    "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh",
)  # fmt: skip


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a directory with the code of nodes that every user can read."""
    with TemporaryDirectory(prefix="berth-attacks-") as name:
        code = Path(name) / "code"
        with tarfile.open(fileobj=io.BytesIO(node_code())) as archive:
            archive.extractall(code, filter="data")
        shutil.copy(FOLDER / "agent.py", code)
        for path in (Path(name), code, *code.rglob("*")):
            path.chmod(0o755)
        yield Path(name)


def attack(
    place: Path, policy: str, *, user: int | None = None, prefix: tuple[str, ...] = (),
    image: tuple[str, ...] = (), **variables: str,
) -> Any:  # fmt: skip
    """Run the attacks as `user`, or as the user that runs the tests. Return the agent's output.

    `image` is the image of the hostile pod, with credentials.
    """
    home = place / f"{policy}-{user}-{len(prefix)}-{len(image)}"
    home.mkdir(mode=0o700)
    identity: dict[str, Any] = {}
    if user is not None and IS_ROOT:
        os.chown(home, user, user)
        identity = {"user": user, "group": user, "extra_groups": []}
    python = SYSTEM_PYTHON if identity else sys.executable
    agent = (str(place / "code" / "agent.py"), str(home), (FOLDER / "attacks.py").read_text())
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(place / "code"), "BERTH_ISOLATION": policy}
    completed = subprocess.run(
        [*prefix, python, *agent, *image], env=environment | variables,
        capture_output=True, text=True, check=False, cwd="/", **identity,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def assert_only_the_table_succeeds(result: Any, level: str) -> None:
    assert result["log"].startswith("["), result
    assert result["succeeded"] == table.succeeded(level, result["limits"])


def assert_second_project_is_rejected(result: Any) -> None:
    """Assert that a node that cannot isolate pods gives a reason and runs no pod of the second project."""
    assert result["level"] == "none"
    assert result["obstacle"]
    assert "already serves the project vision" in result["message"]
    assert result["obstacle"] in result["message"]


def test_attacks_fail_with_the_strongest_available_isolation(place: Path) -> None:
    result = attack(place, "auto")
    if result["level"] == "none":
        assert_second_project_is_rejected(result)
    else:
        assert_only_the_table_succeeds(result, result["level"])
        assert (result["level"] == "users") == (not result["obstacle"])


def test_attacks_fail_in_a_container_image(place: Path) -> None:
    # The image has no files of its own. The pod runs the machine's Python.
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}")
    with running_registry(place / "registry") as registry:
        image = registry.push("attacker/links", [layer({}, links=PROGRAM_LINKS)])
        with_image = (image, registry.auth)
        result = attack(place, "auto", image=with_image, BERTH_IMAGES="auto", BERTH_POD_PATHS="/usr")
    if result["images_obstacle"]:
        pytest.skip(result["images_obstacle"])
    assert_only_the_table_succeeds(result, table.IMAGE)


@pytest.mark.heavy
def test_attacks_fail_if_the_agent_runs_as_an_unprivileged_user(place: Path) -> None:
    result = attack(place, "auto", user=ORDINARY_USER)
    if result["level"] == "none":
        assert_second_project_is_rejected(result)
    else:
        assert_only_the_table_succeeds(result, table.NAMESPACES)
        assert "Run the agent as root" in result["obstacle"]


def test_attacks_succeed_with_isolation_off(place: Path) -> None:
    # An attack that never succeeds would prove nothing.
    result = attack(place, "off")
    assert (result["level"], result["obstacle"]) == ("none", "BERTH_ISOLATION is off.")
    assert_only_the_table_succeeds(result, table.OFF_AS_ROOT if IS_ROOT else table.OFF)


@pytest.mark.heavy
def test_attacks_succeed_as_an_unprivileged_user_with_isolation_off(place: Path) -> None:
    assert_only_the_table_succeeds(attack(place, "off", user=ORDINARY_USER), table.OFF)


def test_pod_of_a_second_project_is_rejected_where_namespaces_are_forbidden(place: Path) -> None:
    result = attack(place, "auto", user=ORDINARY_USER, prefix=WITHOUT_NAMESPACES)
    assert_second_project_is_rejected(result)
    assert "namespace" in result["obstacle"]


def test_documentation_lists_every_isolation_attack() -> None:
    assert table.DOCUMENT.read_text() == table.document_with_table(), "run python -m tests.isolation.table"
    assert len(table.ATTACKS) >= 40
