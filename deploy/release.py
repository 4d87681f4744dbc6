"""Build the files of a release: source distribution, wheel, SBOM and checksums.

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "base.txt"
CHECKSUMS = "SHA256SUMS"
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class ReleaseError(Exception):
    """Error for a release that cannot be built. The message states the cause and a remedy."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python deploy/release.py", description="Build the files of a release."
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="Output directory, new or empty; default: dist."
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
    """Build a release in `out`, and return its files with the checksums last.

    Raises ReleaseError if the release cannot be built.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    if not draft:
        check_changelog((ROOT / "CHANGELOG.md").read_text(), version)
        if changed := _git("status", "--porcelain"):
            raise ReleaseError(f"Commit or remove these files first:\n{changed}")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty. Empty it, or choose another directory with --out.")
    commit_time = int(_git("log", "-1", "--format=%ct"))
    _build(out, commit_time)
    distribution = project["name"].replace("-", "_")
    sbom_file = out / f"{distribution}-{version}.cdx.json"
    sbom_file.write_text(json.dumps(build_sbom(project, LOCK.read_text(), commit_time), indent=2) + "\n")
    files = [
        out / f"{distribution}-{version}.tar.gz",
        out / f"{distribution}-{version}-py3-none-any.whl",
        sbom_file,
    ]
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / CHECKSUMS).write_text("".join(lines))
    return [*files, out / CHECKSUMS]


def check_changelog(changelog: str, version: str) -> None:
    """Raise ReleaseError unless the first version in the changelog is `version` and has a date."""
    heading = re.search(r"^## (?P<version>\S+) \((?P<date>[^)]*)\)$", changelog, re.MULTILINE)
    if heading is None or heading["version"] != version:
        first = heading["version"] if heading else "no version"
        raise ReleaseError(
            f"pyproject.toml has version {version}, but CHANGELOG.md begins with {first}. Make them match."
        )
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading["date"]):
        raise ReleaseError(f"CHANGELOG.md has no date for {version}. Write `## {version} (YYYY-MM-DD)`.")


def build_sbom(project: dict[str, Any], lock: str, time: int) -> dict[str, Any]:
    """Return the CycloneDX 1.6 SBOM of a server installation. Packages are in lock file order."""
    name, version = project["name"], project["version"]
    components = [_build_component(entry) for entry in re.split(r"\n(?=\S)", lock.strip())]
    extras = project.get("optional-dependencies", {})
    requirements = [*project["dependencies"], *itertools.chain.from_iterable(extras.values())]
    declared = {_normalize_name(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}
    direct = [part["bom-ref"] for part in components if part["name"] in declared]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name + version + lock)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, UTC).isoformat(),
            "component": {
                "type": "application",
                "bom-ref": f"{name}=={version}",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": components,
        "dependencies": [{"ref": f"{name}=={version}", "dependsOn": direct}],
    }


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
    # The lock file has one hash for each platform's file, so none of them is the component's own hash.
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
    """Return a distribution name as it is spelled in purls and lock files."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _build(out: Path, time: int) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
    process = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"hatchling failed:\n{process.stdout}{process.stderr}")


def _git(*arguments: str) -> str:
    process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed: {process.stderr.strip()}")
    return process.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
