"""Test the path of a secret from the command line to a pod in a running installation."""

from pathlib import Path

import pytest

from tests.contracts.pods import files_containing
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.timeout(900)
VALUE = "swordfish-of-the-journey"


@pytest.mark.heavy
def test_secret_reaches_only_the_pods_of_workloads_that_request_it(
    shared_berth: Installation, dave_on_shared_berth: Terminal, tmp_path: Path
) -> None:
    dave, admin = dave_on_shared_berth, sign_in(shared_berth, "admin", tmp_path / "admin")
    admin.berth("secret", "set", "journey", "-p", "vision", stdin=VALUE)
    script = 'printf %s "$TOKEN" | cmp - "$BERTH_SECRETS_DIR/t.txt" && echo "${#TOKEN} characters"'
    dave.berth("submit", "-n", "secret", "-p", "vision", "--gpu", "0", "--secret", "journey=TOKEN",
               "--secret-file", "journey=t.txt", "--shell", script)  # fmt: skip
    client = dave.client()
    workload = client.workloads.find("secret")
    until(lambda: client.workloads.get(workload.id).phase in ("completed", "failed"))
    log = client.workloads.log(workload.id).data.decode()
    assert (client.workloads.get(workload.id).phase, log) == ("completed", f"{len(VALUE)} characters\n")
    assert files_containing(shared_berth.home, VALUE) == [], "neither the database nor a log contains it"
    printed = dave.berth("submit", "-n", "leak", "-p", "vision", "--gpu", "0", "--secret", "journey=TOKEN",
                         "--follow", "--shell", 'echo "token: $TOKEN"; echo "$TOKEN" | base64')  # fmt: skip
    masked, encoded = printed.splitlines()[-2:]
    assert masked == f"token: {'*' * len(VALUE)}"
    assert encoded.startswith("*" * len(VALUE))
    admin.berth("secret", "delete", "journey", "-p", "vision")
    dave.berth("delete", "secret")
    dave.berth("delete", "leak")
