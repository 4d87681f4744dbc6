"""Classify errors from podman pulls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pools.runtimes.images.reference import Reference

# The order matters: some messages match several entries.
_TEXTS_BY_NAME: Mapping[str, tuple[str, ...]] = {
    "no_space": ("no space left on device", "disk quota exceeded"),
    "wrong_architecture": (
        "no image found in manifest list for architecture", "no image found in image index for architecture",
    ),
    "untrusted": (
        "x509: ", "certificate signed by unknown authority", "gave http response to https client",
    ),
    "busy": (
        "toomanyrequests", "too many requests", "http status: 5", "status code 5",
        "status code from registry 5",
    ),
    "unauthorized": (
        "unauthorized", "authentication required", "access to the resource is denied", ": denied",
        "invalid username/password", "status code 401", "status code 403", "(forbidden)",
    ),
    "not_found": (
        "manifest unknown", "name unknown", "name invalid", "not known to registry", ": not found",
        "status code 404",
    ),
    "unreachable": (
        "connection refused", "no such host", "network is unreachable", "no route to host", "i/o timeout",
        "tls handshake timeout", "connection reset", "server misbehaving", "deadline exceeded", ": eof",
        "unexpected eof",
    ),
}  # fmt: skip
_TRANSIENT = frozenset({"busy", "unreachable", "no_answer", "killed"})
_TEXTS = {
    "no_space": "no space: the node's disk is full. Free space on the node, or use a smaller image",
    "wrong_architecture": "wrong architecture: the image does not run on {machine}. "
                          "Build it for this architecture, or choose another pool",
    "untrusted": "the registry {host} has no trusted TLS certificate. "
                 "Add its authority to the node's certificates",
    "busy": "the registry {host} currently rejects requests: {detail}",
    "unauthorized": "unauthorized: the registry {host} rejects access. Check the image's name, "
                    "and the registry secret of the project or the pool",
    "not_found": "not found: the registry {host} does not have the image. Check its name and digest",
    "unreachable": "the registry {host} is not reachable: {detail}",
    "no_answer": "no response: the registry {host} sent nothing for {detail}",
    "killed": "podman was killed during the pull",
    "other": "{detail}",
}  # fmt: skip


@dataclass(frozen=True)
class PullError:
    """Image pull error. `name` identifies the kind of error."""

    name: str
    text: str

    @property
    def is_transient(self) -> bool:
        return self.name in _TRANSIENT


def pull_error(name: str, reference: Reference, machine: str, detail: str = "") -> PullError:
    return PullError(name, _TEXTS[name].format(host=reference.host, machine=machine, detail=detail))


def classify_failure(output: str, reference: Reference, machine: str) -> PullError:
    """Return the pull error that matches podman's stderr."""
    detail = last_error(output)
    # Remove the image's name, which may itself contain any of these phrases.
    text = detail.replace(reference.name, "").replace(reference.digest, "").lower()
    for name, texts in _TEXTS_BY_NAME.items():
        if any(each in text for each in texts):
            return pull_error(name, reference, machine, detail.rpartition(": ")[2])
    return pull_error("other", reference, machine, detail)


def last_error(output: str) -> str:
    """Return the last error line of podman's stderr, without its prefix."""
    lines = [line for line in output.strip().splitlines() if line.startswith("Error: ")]
    lines = lines or output.strip().splitlines() or ["podman wrote no error"]
    return lines[-1].removeprefix("Error: ")[:500]
