"""A real container registry with authentication on loopback, and small images for it.

Images are built in memory and pushed, which takes 20 ms and allows images that no build tool produces.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

PROGRAMS = ("podman", "runc", "conmon", "catatonit", "docker-registry", "busybox")
USER, PASSWORD = "puller", "berth-test"
# The password's bcrypt hash, which no library can compute without a further dependency.
_HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuupAN5U5wYWVs79LoNJdNIIaTJdfN5k9e\n"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_START_SECONDS = 180.0
ARCHITECTURE = "amd64"
Files = Mapping[str, bytes]


def missing_programs() -> list[str]:
    """Return the programs that image tests need and that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@dataclass(frozen=True)
class Registry:
    """A running registry at `address`, which is `127.0.0.1:port`."""

    address: str

    @property
    def auth(self) -> str:
        """Return the auth.json of a user who may pull and push."""
        return self.auth_for(PASSWORD)

    def auth_for(self, password: str) -> str:
        encoded = base64.b64encode(f"{USER}:{password}".encode()).decode()
        return json.dumps({"auths": {self.address: {"auth": encoded}}})

    def push(
        self, name: str, layers: Sequence[bytes] | None = None, *, tag: str = "",
        architecture: str = ARCHITECTURE, **config: Any,
    ) -> str:  # fmt: skip
        """Push an image, by default of busybox, and return its reference by digest.

        `layers` are tar archives. `config` contains fields of the image configuration, such as `Env`.
        """
        contents = [busybox_layer()] if layers is None else list(layers)
        described = [self._push_blob(name, gzip.compress(each, 1, mtime=0)) for each in contents]
        settings = json.dumps({
            "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [_digest(each) for each in contents]},
        })  # fmt: skip
        manifest = {
            "schemaVersion": 2, "mediaType": _MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                       **self._push_blob(name, settings.encode())},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **each}
                       for each in described],
        }  # fmt: skip
        return self._push_manifest(name, manifest, tag)

    def push_index(self, name: str, images: Mapping[str, str]) -> str:
        """Push an index of image references by architecture, and return its reference by digest."""
        manifests = []
        for architecture, reference in images.items():
            digest = reference.partition("@")[2]
            size = len(self.request("GET", f"{name}/manifests/{digest}", accept=_MANIFEST).read())
            platform = {"architecture": architecture, "os": "linux"}
            manifests.append({"mediaType": _MANIFEST, "digest": digest, "size": size, "platform": platform})
        return self._push_manifest(
            name, {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}, ""
        )

    def request(
        self, method: str, path: str, body: bytes | None = None, *, kind: str = "", accept: str = ""
    ) -> Any:
        """Send a request to the registry's API. Raises HTTPError."""
        url = path if path.startswith("http") else f"http://{self.address}/v2/{path}"
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}", "Content-Type": kind or "application/octet-stream"}
        headers |= {"Accept": accept} if accept else {}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        return _DIRECT.open(request, timeout=120)

    def _push_blob(self, name: str, data: bytes) -> dict[str, Any]:
        digest = _digest(data)
        place = self.request("POST", f"{name}/blobs/uploads/", b"").headers["Location"]
        self.request("PUT", f"{place}&digest={digest}", data)
        return {"digest": digest, "size": len(data)}

    def _push_manifest(self, name: str, manifest: dict[str, Any], tag: str) -> str:
        data = json.dumps(manifest).encode()
        self.request("PUT", f"{name}/manifests/{tag or _digest(data)}", data, kind=manifest["mediaType"])
        return f"{self.address}/{name}@{_digest(data)}"


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def running_registry(directory: Path) -> Iterator[Registry]:
    """Run a registry that stores its data in this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "htpasswd").write_text(_HTPASSWD)
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "version": 0.1, "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "berth", "path": str(directory / "htpasswd")}},
    }  # fmt: skip
    (directory / "registry.yml").write_text(json.dumps(settings))  # JSON is YAML
    with (directory / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(directory / "registry.yml")], stdout=log, stderr=log
        )
    try:
        _wait_for(address, process)
        yield Registry(address)
    finally:
        process.kill()
        process.wait()


def busybox_layer() -> bytes:
    """Return a layer with a shell, common programs and an /etc/passwd."""
    path = Path(shutil.which("busybox") or "busybox").resolve()
    programs = subprocess.run(
        [str(path), "--list"], capture_output=True, text=True, check=True
    ).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, "bin/busybox", path.read_bytes(), 0o755)
        for program in sorted(set(programs) - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{program}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nwww:x:33:33:www:/var/www:/bin/sh\n", 0o644)
    return buffer.getvalue()


def layer(files: Files, private: str = "", links: Mapping[str, str] | None = None) -> bytes:
    """Return a layer with these files and symbolic links, and a directory that only root may enter."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            _add(tar, name, data, 0o644)
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        if private:
            folder = tarfile.TarInfo(private)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o700
            tar.addfile(folder)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    for parent in reversed(Path(name).parents[:-1]):
        if str(parent) not in tar.getnames():
            folder = tarfile.TarInfo(str(parent))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            _DIRECT.open(f"http://{address}/v2/", timeout=60)
        except urllib.error.HTTPError:
            return  # the registry asks for a password
        except OSError:
            assert process.poll() is None, "the registry ended"
            assert time.monotonic() < deadline, "the registry did not start"
            time.sleep(0.02)
