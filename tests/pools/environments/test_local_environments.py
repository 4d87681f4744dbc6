"""Tests for environments on this machine. Each environment is built once for all nodes.

The tests build the packages and install them from a directory, so that no network is needed.
"""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.environments.local import InstallStatus, LocalEnvironments, Recipe
from pools.environments.progress import parse_progress
from pools.plugins import Image, Index, Operation
from pools.plugins.script import bootstrap_script, compute_digest, phase_names
from tests.contracts.pods import poll_until
from tests.support.interpreters import find_python

pytestmark = pytest.mark.heavy  # real virtual environments, built by pip

SECRET = "hf_verysecrettoken"


def wheel(directory: Path, name: str, version: str, *, needs: str = "", code: str = "") -> None:
    """Build a package that pip can install."""
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": code or f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as packed:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            packed.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "wheels"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return directory


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalEnvironments]:
    environments = LocalEnvironments(tmp_path / "environments")
    yield environments
    for boot in (tmp_path / "environments" / "boots").glob("*"):
        environments.end(boot.name)


def recipe(image: Image, *operations: Operation, **secrets: str) -> Recipe:
    return Recipe(compute_digest(image, operations), bootstrap_script(image, operations), secrets)


def ended(here: LocalEnvironments, name: str, of: Recipe) -> InstallStatus:
    """Wait for the build script's process and return the build state."""
    for _ in range(6000):
        boot = here.get_status(name, of.secrets)
        if boot is None or boot.ready or boot.failure:
            assert boot is not None, "no build is running"
            return boot
        time.sleep(0.05)
    raise AssertionError("the script does not end")


def python(here: LocalEnvironments, of: Recipe, code: str) -> str:
    program = here.root / of.digest / "bin" / "python"
    return subprocess.run([program, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_environment_has_the_declared_python_version(
    here: LocalEnvironments, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = find_python("3.10")
    if interpreter is None:
        pytest.skip("Python 3.10 is not installed on this machine")
    monkeypatch.setenv("PATH", str(Path(interpreter).parent), prepend=os.pathsep)
    wheel(wheels, "lib", "2.0")
    node_recipe = recipe(Image(python="3.10", pip=("lib",)))
    here.begin_installation("node-0", node_recipe)
    boot = ended(here, "node-0", node_recipe)
    assert boot.ready, boot
    code = "import sys, lib, pools.plugins.contexts; print(lib.VERSION, *sys.version_info[:2])"
    assert python(here, node_recipe, code) == "2.0 3 10"


@pytest.mark.shows("PLG-08", "PLG-11", "PLG-12", "PLG-41")
def test_script_installs_packages_and_runs_plugin_operations(here: LocalEnvironments, wheels: Path) -> None:
    wheel(wheels, "lib", "2.0")
    wheel(wheels, "app", "1.0", needs="lib>=1")
    image = Image(pip=("app",), env={"GREETING": "it's\nme"}, secrets=("HF_TOKEN",))
    operations = (
        Operation('python -c "import app"\nprintf %s "$GREETING" > "$VIRTUAL_ENV/said"', "first"),
        Operation('test -f "$VIRTUAL_ENV/said" && test "$HF_TOKEN" = hf_verysecrettoken', "second"),
    )
    node_recipe = recipe(image, *operations, HF_TOKEN=SECRET)
    here.begin_installation("node-0", node_recipe)
    boot = ended(here, "node-0", node_recipe)
    assert boot.ready, boot
    assert [phase.phase for phase in boot.progress.phases] == list(phase_names(image, operations))
    assert {phase.state for phase in boot.progress.phases} == {"done"}
    assert (here.root / node_recipe.digest / "said").read_text() == "it's\nme"
    assert python(here, node_recipe, "import lib; print(lib.VERSION)") == "2.0"
    assert python(here, node_recipe, "import pools.plugins, berth.core.errors; print('ours')") == "ours"
    stored = [path for path in here.root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    leaked = [path for path in stored if SECRET.encode() in path.read_bytes()]
    assert {path.name for path in leaked} <= {"script"}, "only this test's own operation contains the secret"


def test_second_node_reuses_the_first_nodes_environment(here: LocalEnvironments, wheels: Path) -> None:
    wheel(wheels, "lib", "2.0")
    node_recipe = recipe(Image(pip=("lib",)), Operation('echo run >> "$VIRTUAL_ENV/runs"', "note"))
    for name in ("node-0", "node-1"):  # installed on both nodes at the same time
        here.begin_installation(name, node_recipe)
    boots = [ended(here, name, node_recipe) for name in ("node-0", "node-1")]
    assert all(boot.ready for boot in boots)
    builds = [boot for boot in boots if "pip" in {phase.phase for phase in boot.progress.phases}]
    assert len(builds) == 1
    assert (here.root / node_recipe.digest / "runs").read_text() == "run\nrun\n", (
        "operations run on phase node"
    )


def test_package_from_a_scoped_index_is_not_replaced(
    here: LocalEnvironments, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    special = tmp_path / "special" / "torchy"
    special.mkdir(parents=True)
    wheel(special, "torchy", "1.0+cpu", needs="lib")
    (special / "index.html").write_text('<a href="torchy-1.0+cpu-py3-none-any.whl">torchy</a>')
    usual = tmp_path / "usual"
    for name in ("torchy", "lib", "user"):
        (usual / name).mkdir(parents=True)
    wheel(usual / "torchy", "torchy", "9.0")
    wheel(usual / "lib", "lib", "2.0")
    wheel(usual / "user", "user", "1.0", needs="torchy")
    for page in usual.iterdir():
        (page / "index.html").write_text("".join(f'<a href="{f.name}">x</a>' for f in page.glob("*.whl")))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    indexes = (Index(f"file://{special.parent}", ("Torchy",)), Index(f"file://{usual}"))
    node_recipe = recipe(Image(pip=("user", "torchy"), indexes=indexes))
    here.begin_installation("node-0", node_recipe)
    assert ended(here, "node-0", node_recipe).ready
    code = "from importlib.metadata import version; print(version('torchy'), version('lib'))"
    assert python(here, node_recipe, code) == "1.0+cpu 2.0"


@pytest.mark.parametrize(
    ("image", "operations", "expected"),
    [
        (Image(pip=("nosuchpackage",)), (), "pip: ERROR: No matching distribution found for nosuchpackage"),
        (Image(apt=("no-such-debian-package",)), (),
         "apt: Berth cannot install them here. An administrator can run: apt-get install no-such-debian"),
        (Image(python="3.19"), (), "python: Python 3.19 is not on this machine"),
        (Image(), (Operation("echo about to\nfalse\necho not here", "bad"),), "bad: about to"),
        (Image(secrets=("KEY",)), (Operation('echo "the key is $KEY" >&2; exit 3', "login"),),
         "login: the key is ***"),
    ],
)  # fmt: skip
def test_failed_build_is_reported_with_its_last_output(
    here: LocalEnvironments, wheels: Path, image: Image, operations: tuple[Operation, ...], expected: str
) -> None:
    node_recipe = recipe(image, *operations, **dict.fromkeys(image.secrets, SECRET))
    here.begin_installation("node-0", node_recipe)
    boot = ended(here, "node-0", node_recipe)
    assert not boot.ready
    assert boot.failure.startswith(f"environment could not be installed: {expected}")
    assert boot.progress.failed_phase is not None
    assert SECRET not in json.dumps([phase.to_dict() for phase in boot.progress.phases])
    assert (here.root / node_recipe.digest).exists() == bool(operations), (
        "an incomplete environment is deleted"
    )


def test_installation_failure_names_an_unreachable_network_as_the_cause(
    here: LocalEnvironments, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    node_recipe = recipe(Image(pip=("lib",)))
    quick = Recipe(node_recipe.digest, node_recipe.script.replace("--retries 2", "--retries 1"), {})
    here.begin_installation("node-0", quick)
    failure = ended(here, "node-0", quick).failure
    assert failure.endswith("No matching distribution found for lib (network unreachable, see the output)")


def test_crash_during_a_build_leaves_no_partial_environment(here: LocalEnvironments, wheels: Path) -> None:
    wheel(wheels, "lib", "2.0")
    image = Image(pip=("lib",))
    node_recipe = recipe(image)
    slow = Recipe(
        node_recipe.digest, node_recipe.script.replace("install_pip() {", "install_pip() {\n  sleep 60"), {}
    )
    here.begin_installation("node-0", slow)
    home = here.root / "boots" / "node-0"
    poll_until(lambda: '"pip", "state": "running"' in (home / "phases").read_text())
    assert (here.root / node_recipe.digest / "bin" / "python").exists()
    pid = int((home / "process").read_bytes().split(b"\0")[0].removeprefix(b"pid="))
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert here.get_status("node-0", {}) is None, "no build is running"
    assert not (here.root / node_recipe.digest / ".ready").exists()
    here.begin_installation("node-0", node_recipe)
    assert ended(here, "node-0", node_recipe).ready
    assert python(here, node_recipe, "import lib; print(lib.VERSION)") == "2.0"


def test_only_unused_environments_are_deleted(here: LocalEnvironments, wheels: Path) -> None:
    used, unused = recipe(Image(env={"A": "1"})), recipe(Image(env={"A": "2"}))
    for node_recipe in (used, unused):
        here.begin_installation(node_recipe.digest[:8], node_recipe)
        assert ended(here, node_recipe.digest[:8], node_recipe).ready
    assert here.delete_unused_environments(frozenset({used.digest})) == [], (
        "a node still uses the environment"
    )
    here.end(unused.digest[:8])
    assert here.delete_unused_environments(frozenset({used.digest})) == [unused.digest]
    assert not (here.root / unused.digest).exists()
    assert (here.root / used.digest / ".ready").exists()


def test_installation_script_is_valid_shell_and_deterministic(tmp_path: Path) -> None:
    image = Image(pip=("torch==2.9.1", "numpy"), apt=("git",), env={"A": "$(reboot)"}, secrets=("HF_TOKEN",),
                  indexes=(Index("https://example.org/whl/cu128", ("torch",)),))  # fmt: skip
    text = bootstrap_script(image, (Operation("echo done", "last thing"),))
    assert text == bootstrap_script(image, (Operation("echo done", "last thing"),))
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert "from_index https://example.org/whl/cu128 torch==2.9.1\n" in text
    assert "export A='$(reboot)'" in text
    assert "phase 'last thing' operation_0" in text
    assert "@" not in text.replace("$@", "").replace("last thing", ""), "all placeholders are replaced"


def test_invalid_lines_in_the_installation_output_are_ignored() -> None:
    lines = [
        '{"phase": "apt", "state": "running", "seconds": 0, "message": ""}', "not json", '{"phase": "apt"',
        '{"phase": "apt", "state": "done", "seconds": 2, "message": ""}', "[]", '{"phase": "x", "state": 1}',
        '{"phase": "pip", "state": "failed", "seconds": 1, "message": "key hf_x\\n\\nlast"}',
    ]  # fmt: skip
    progress = parse_progress(lines, ["hf_x"])
    assert [(phase.phase, phase.state) for phase in progress.phases] == [("apt", "done"), ("pip", "failed")]
    assert progress.failed_phase is not None
    assert "hf_x" not in progress.failed_phase.message
    assert progress.failure_message == "environment could not be installed: pip: last"
    assert sys.version_info >= (3, 11)
