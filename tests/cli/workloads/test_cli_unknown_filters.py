"""Tests for list commands with filters that name objects that do not exist."""

import pytest

from berth.client import Client, Invalid, Settings
from tests import factories
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)

COMMANDS = [
    ("list -p visoin", "project", "vision"),
    ("list --pool loca", "pool", "local"),
    ("list --by davee", "submitted_by", "dave"),
    ("evictions --workload trian", "workload", "train"),
    ("evictions --pool loca", "pool", "local"),
    ("node list --pool loca", "pool", "local"),
    ("quota show --pool loca", "pool", "local"),
    ("member list --user davee", "user", "dave"),
    ("project list --department reserch", "department", "research"),
    ("audit --by davee", "actor", "dave"),
    ("usage report --project visoin", "project", "vision"),
]


@pytest.mark.parametrize(("command", "field", "meant"), COMMANDS)
def test_list_command_rejects_an_unknown_name_and_suggests_the_nearest_name(
    berth: Berth, cast: Cast, command: str, field: str, meant: str
) -> None:
    factories.workload(cast.vision, "train", by=cast.dave.user)
    rejected = berth(*command.split(), BERTH_TOKEN=token_of(cast.dave))
    assert (rejected.returncode, rejected.stdout) == (2, "")
    typed = command.rsplit(maxsplit=1)[-1]
    assert f"{field}: does not exist; received {typed!r}. Did you mean `{meant}`?" in rejected.stderr


def test_client_raises_invalid_for_an_unknown_project(cast: Cast, environment: dict[str, str]) -> None:
    settings = Settings(address=environment["BERTH_URL"], token=token_of(cast.dave))
    with Client(settings) as client, pytest.raises(Invalid, match="Did you mean `vision`"):
        list(client.workloads.list(project="visoin"))
