"""Tests for `berth user`."""

import json

import pytest

from berth.client import Client, Settings
from tests import factories
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_user_can_be_described_deactivated_and_activated(berth: Berth, cast: Cast) -> None:
    factories.workload(cast.vision, "train", phase="running", by=cast.dave.user)
    admin, dave = {"BERTH_TOKEN": token_of(cast.alice)}, {"BERTH_TOKEN": token_of(cast.dave)}

    def run(*words: str) -> str:
        result = berth("user", *words, **admin)
        assert result.returncode == 0, result.stderr
        return result.stdout

    description = run("describe", "dave")
    assert "Active          yes\n" in description
    assert "Roles           member of vision\nLive workloads  1\n" in description
    assert berth("whoami", **dave).returncode == 0
    assert run("deactivate", "dave") == (
        "User dave deactivated. 1 token revoked, 0 sessions ended.\n"
        "Live workloads of dave, which keep running: 1 (berth list --by dave)\n"
    )
    assert berth("whoami", **dave).returncode == 3
    assert "train" in berth("list", "--by", "dave", **admin).stdout
    assert json.loads(run("list", "--inactive", "-o", "json")) == [
        {"username": "dave", "email": "dave@example.org", "active": False}
    ]
    assert run("activate", "dave") == "User dave can sign in again.\n"
    assert json.loads(run("describe", "dave", "-o", "json"))["active"] is True


def test_user_commands_reject_the_callers_own_account_and_unknown_users(berth: Berth, cast: Cast) -> None:
    admin = {"BERTH_TOKEN": token_of(cast.alice)}
    own = berth("user", "deactivate", "alice", **admin)
    assert (own.returncode, own.stdout) == (5, "")
    assert own.stderr == "berth: You cannot deactivate your own account. Ask another platform admin.\n"
    unknown = berth("user", "deactivate", "davee", **admin)
    assert unknown.returncode == 4
    assert unknown.stderr == "berth: There is no user named 'davee'. Did you mean `dave`?\n"


def test_client_deactivates_and_activates_a_user(cast: Cast, environment: dict[str, str]) -> None:
    with Client(Settings(address=environment["BERTH_URL"], token=token_of(cast.alice))) as client:
        assert client.users.deactivate("dave").revoked_tokens == 0
        assert [user.username for user in client.users.list(active=False)] == ["dave"]
        assert client.users.get("dave").active is False
        assert client.users.activate("dave").active is True


def test_error_for_an_unknown_role_suggests_the_nearest_role(berth: Berth) -> None:
    rejected = berth("member", "add", "dave", "--role", "membr", "--project", "vision")
    assert rejected.returncode == 2
    assert "'membr' is not one of" in rejected.stderr and "Did you mean `member`?" in rejected.stderr
    assert "Value error" not in rejected.stderr


def test_duplicate_department_name_is_reported_as_an_error_in_the_name_field(
    berth: Berth, cast: Cast
) -> None:
    rejected = berth("department", "create", "research", BERTH_TOKEN=token_of(cast.alice))
    assert rejected.returncode == 2
    assert rejected.stderr == "berth: name: is already in use; received 'research'.\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "pool create x --provider ssh --hosts /none",
            "--hosts: /none cannot be read: No such file or directory",
        ),
        (
            "pool create x --plugin torch:a=@/none",
            "--plugin: /none cannot be read: No such file or directory",
        ),
        (
            "pool create x --provider kubernetes --kubeconfig /none",
            "the kubeconfig /none cannot be read: No such file or directory",
        ),
    ],
)
def test_missing_file_error_shows_the_path_once_and_no_errno(berth: Berth, words: str, message: str) -> None:
    rejected = berth(*words.split())
    assert (rejected.returncode, rejected.stderr) == (2, f"berth: {message}.\n")


def test_platform_admin_lists_and_revokes_other_users_tokens(berth: Berth, cast: Cast) -> None:
    admin, dave = {"BERTH_TOKEN": token_of(cast.alice)}, {"BERTH_TOKEN": token_of(cast.dave)}
    assert berth("token", "create", "ci", "--scope", "read", **dave).returncode == 0
    everyone = berth("token", "list", "--everyone", **admin).stdout
    assert everyone.startswith("USER ") and "dave" in everyone and "alice" in everyone
    assert "USER" not in berth("token", "list", **admin).stdout
    rejected = berth("token", "list", "--everyone", **dave)
    assert rejected.returncode == 1
    assert rejected.stderr.startswith("berth: Only platform admins can list the tokens of other users.")
    assert berth("token", "revoke", "ci", **admin).returncode == 2, "not one of the admin's own tokens"
    assert berth("token", "revoke", "ci", "--user", "dave", **admin).stdout == "ci revoked\n"
    assert "ci" not in berth("token", "list", "--user", "dave", **admin).stdout.split()
