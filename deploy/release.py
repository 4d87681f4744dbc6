"""Build a release: source distribution, both wheels, SBOM and checksums.

python deploy/release.py               build into dist/; requires a dated changelog entry
python deploy/release.py --draft       allow an unreleased version and uncommitted files
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "deploy" / "server"
LOCK = ROOT / "requirements" / "base.txt"
CHECKSUMS = "SHA256SUMS"
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class ReleaseError(Exception):
    """Raised if a release cannot be built. The message states the cause and a remedy."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python deploy/release.py", description="Build the files of a release."
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="Output directory, new or empty. Defaults to dist."
    )
    parser.add_argument(
        "--draft", action="store_true", help="Allow an unreleased version and uncommitted files."
    )
    options = parser.parse_args()
    try:
        files = release(options.out, draft=options.draft)
    except ReleaseError as error:
        print(f"No release was built. {error}", file=sys.stderr)
        return 1
    for file in files:
        print(file)
    return 0


def release(out: Path, *, draft: bool = False) -> list[Path]:
    """Build a release and return its files, with the checksum file last.

    Raises ReleaseError if the build fails.
    """
    client, server = read_project(ROOT), read_project(SERVER)
    check_versions(client, server)
    version = client["version"]
    if not draft:
        check_changelog((ROOT / "CHANGELOG.md").read_text(), version)
        if changed := _git("status", "--porcelain"):
            raise ReleaseError(f"Commit or remove these files first:\n{changed}")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty. Empty it, or choose another directory with --out.")
    commit_time = int(_git("log", "-1", "--format=%ct"))
    _build(ROOT, ("sdist", "wheel"), out, commit_time)
    _build(SERVER, ("wheel",), out, commit_time)
    distribution = client["name"].replace("-", "_")
    sbom_file = out / f"{distribution}-{version}.cdx.json"
    sbom = build_sbom(client, server, LOCK.read_text(), commit_time)
    sbom_file.write_text(json.dumps(sbom, indent=2) + "\n")
    files = [
        out / f"{distribution}-{version}.tar.gz",
        out / f"{distribution}-{version}-py3-none-any.whl",
        out / f"{server['name'].replace('-', '_')}-{version}-py3-none-any.whl",
        sbom_file,
    ]
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / CHECKSUMS).write_text("".join(lines))
    return [*files, out / CHECKSUMS]


def read_project(folder: Path) -> dict[str, Any]:
    """Return the `project` table of the folder's pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def check_versions(client: dict[str, Any], server: dict[str, Any]) -> None:
    """Raise ReleaseError unless client and server have the same version and each requires that version of the
    other.
    """
    version = client["version"]
    required_server = f"{server['name']}=={version}"
    required_client = f"{client['name']}=={version}"
    if (
        server["version"] != version
        or client["optional-dependencies"]["server"] != [required_server]
        or required_client not in server["dependencies"]
    ):
        raise ReleaseError(
            f"pyproject.toml has version {version}. Set the same version in deploy/server/pyproject.toml, "
            f"and require {required_server} and {required_client}."
        )


def check_changelog(changelog: str, version: str) -> None:
    """Raise ReleaseError unless the first version in the changelog is `version` and has a date."""
    heading = re.search(r"^## (?P<version>\S+) \((?P<date>[^)]*)\)$", changelog, re.MULTILINE)
    if heading is None:
        raise ReleaseError(
            f"CHANGELOG.md has no heading with a version and a date. Add `## {version} (YYYY-MM-DD)`."
        )
    if heading["version"] != version:
        raise ReleaseError(
            f"pyproject.toml has version {version}, but the first heading `## VERSION (DATE)` in "
            f"CHANGELOG.md has version {heading['version']}. Make them match."
        )
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading["date"]):
        raise ReleaseError(f"CHANGELOG.md has no date for {version}. Write `## {version} (YYYY-MM-DD)`.")


def build_sbom(client: dict[str, Any], server: dict[str, Any], lock: str, time: int) -> dict[str, Any]:
    """Return the CycloneDX 1.6 SBOM of a server installation. Packages are in lock file order."""
    name, version = client["name"], client["version"]
    packages = [_build_component(entry) for entry in re.split(r"\n(?=\S)", lock.strip())]
    extras = itertools.chain.from_iterable(client.get("optional-dependencies", {}).values())
    wheels = [_describe_wheel(client, "application"), _describe_wheel(server, "library")]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name + version + lock)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, UTC).isoformat(),
            "component": wheels[0],
        },
        "components": [wheels[1], *packages],
        "dependencies": [
            _direct_dependencies(client, [*client["dependencies"], *extras], [*wheels, *packages]),
            _direct_dependencies(server, server["dependencies"], [*wheels, *packages]),
        ],
    }


def _describe_wheel(project: dict[str, Any], kind: str) -> dict[str, Any]:
    name, version = project["name"], project["version"]
    return {
        "type": kind,
        "bom-ref": f"{name}=={version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
    }


def _direct_dependencies(
    project: dict[str, Any], requirements: Iterable[str], components: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Return the SBOM entry that lists the project's direct dependencies."""
    names = {_normalize_name(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}
    direct = [
        part["bom-ref"] for part in components if part["name"] in names and part["name"] != project["name"]
    ]
    return {"ref": f"{project['name']}=={project['version']}", "dependsOn": direct}


def _build_component(entry: str) -> dict[str, Any]:
    requirement = REQUIREMENT.match(entry)
    if requirement is None:
        raise ReleaseError(
            f"{LOCK.name} has an unpinned requirement: {entry.splitlines()[0]}. Run `make lock`."
        )
    name, version = _normalize_name(requirement["name"]), requirement["version"]
    hashes = [{"alg": "SHA-256", "content": digest} for digest in HASH.findall(entry)]
    if not hashes:
        raise ReleaseError(f"{LOCK.name} has no hash for {name}. Run `make lock`.")
    purl = f"pkg:pypi/{name}@{version}"
    # The lock file has one hash per platform file, so none of them identifies the component itself.
    files = {"type": "distribution", "url": purl, "hashes": hashes}
    return {
        "type": "library",
        "bom-ref": f"{name}=={version}",
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [files],
    }


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _build(folder: Path, targets: Iterable[str], out: Path, time: int) -> None:
    options = itertools.chain.from_iterable(("-t", target) for target in targets)
    command = [sys.executable, "-m", "hatchling", "build", *options, "-d", str(out)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
    process = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"hatchling failed:\n{process.stdout}{process.stderr}")


def _git(*arguments: str) -> str:
    process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed: {process.stderr.strip()}")
    return process.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
