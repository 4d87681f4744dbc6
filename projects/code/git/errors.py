"""Errors raised when code is fetched, with git's messages converted to sentences for users."""

import re

TEXT_MAX = 400
GIT_PREFIX = re.compile(r"^(fatal|error|remote|ssh|warning): ?")
# Patterns of git and ssh messages, by kind of error. The first match applies.
KNOWN = {
    "host_key": r"Host key verification failed|No \S+ host key is known|HOST IDENTIFICATION HAS CHANGED",
    "denied": r"Permission denied|Authentication failed|could not read (Username|Password)|access denied"
    r"|returned error: (401|403)|invalid credentials",
    "key": r"Load key .*: |error in libcrypto",
    "redirect": r"unable to update url base from redirection|returned error: 30[12378]|redirect",
    "repository": r"repository .* not found|returned error: 404|does not appear to be a git repository"
    r"|not found: did you run git update-server-info",
    "commit": r"not our ref|unadvertised object|no such remote ref|couldn't find remote ref"
    r"|remote error: upload-pack: not",
    "size": r"File size limit exceeded|file too large|signal 25",
    "certificate": r"certificate|SSL|TLS",
    "corrupt": r"fsck error|unresolved deltas|index-pack failed|invalid index-pack|bad object|zlib|inflate"
    r"|did not send|mismatch|corrupt",
}


class GitRejection(Exception):
    """Raised if fetching the code fails permanently. The message is a sentence."""


class GitFailure(Exception):
    """Raised if fetching the code fails but may succeed later. The message is a sentence."""


def convert_error(stderr: str, host: str, secret: str) -> GitRejection | GitFailure:
    """Convert git's stderr to an error. `secret` is the name of the secret, or empty."""
    text = last_lines(stderr)
    kind = next((kind for kind, pattern in KNOWN.items() if re.search(pattern, stderr, re.IGNORECASE)), "")
    match kind:
        case "host_key":
            return GitRejection(
                f"The SSH host key of {host} is unknown or has changed. Get its public key from the operator "
                "of the server, and set it as host_key in the document. Or ask an admin to add it to the "
                "file BERTH_GIT_KNOWN_HOSTS."
            )
        case "denied":
            advice = (
                f"Check that the secret {secret} is valid and may read the repository"
                if secret
                else "If the repository is private, name a secret in `secret`"
            )
            return GitRejection(f"{host} denied access. {advice}. It reported: {text}")
        case "key":
            return GitRejection(f"The secret {secret} is not a private SSH key without a passphrase.")
        case "redirect":
            return GitRejection(f"{host} redirects this address. Use the address that it redirects to.")
        case "repository":
            access = f"denies access to it with the secret {secret}" if secret else "denies access to it"
            return GitRejection(f"{host} has no such repository, or {access}. It reported: {text}")
        case "commit":
            return GitRejection(
                f"{host} does not provide this commit. Name a branch or tag that contains it."
            )
        case "size":
            return transfer_too_large_error(host)
        case "certificate":
            return GitFailure(f"The certificate of {host} could not be verified: {text}")
        case "corrupt":
            return GitRejection(f"{host} sent corrupt or unsafe objects: {text}")
    return GitFailure(f"The code could not be fetched from {host}: {text}")


def transfer_too_large_error(host: str) -> GitRejection:
    return GitRejection(
        f"{host} sent more data for this commit than BERTH_GIT_MIB allows. Use a smaller repository."
    )


def last_lines(stderr: str) -> str:
    """Join the last lines of stderr into one printable line, without prefixes."""
    lines = [GIT_PREFIX.sub("", line.strip()) for line in stderr.splitlines()]
    text = "; ".join([line for line in lines if line and not line.startswith("hint:")][-3:])
    text = "".join(char if char.isprintable() else " " for char in text)[:TEXT_MAX].strip()
    return f"{text or 'git reported no reason'}{'' if text.endswith('.') else '.'}"
