"""Tests for the secrets of workload documents."""

from typing import Any

import pytest

from berth.core.spec import SpecError, parse_workload

TOKEN = {"name": "hf-token", "env": "HF_TOKEN"}


def document(
    *secrets: dict[str, Any], role: tuple[dict[str, Any], ...] = (), **changes: Any
) -> dict[str, Any]:
    return {"name": "w", "secrets": list(secrets), "roles": [{"name": "r", "secrets": list(role)}], **changes}


def find_problems(data: object) -> dict[str, str]:
    with pytest.raises(SpecError) as rejected:
        parse_workload(data)
    return {problem.path: problem.message for problem in rejected.value.problems}


def test_role_inherits_the_secrets_of_the_workload() -> None:
    spec = parse_workload(document(TOKEN, role=({"name": "key", "file": "key.pem"},)))
    uses = [(use.name, use.env, use.file) for use in spec.role_secrets(spec.all_roles[0])]
    assert uses == [("hf-token", "HF_TOKEN", None), ("key", None, "key.pem")]
    assert parse_workload(spec.document()) == spec


@pytest.mark.parametrize(
    ("use", "path", "message"),
    [
        ({"name": "a"}, "secrets[0]", "needs env or file"),
        ({"name": "a", "env": "A", "file": "a"}, "secrets[0]", "needs env or file"),
        ({"name": "A b", "env": "A"}, "secrets[0].name", "is not a valid name"),
        ({"name": "a", "env": "1A"}, "secrets[0].env", "is not a valid variable name"),
        ({"name": "a", "env": "BERTH_RUN"}, "secrets[0].env", "is set by Berth"),
        ({"name": "a", "env": "RANK"}, "secrets[0].env", "is set by Berth"),
        ({"name": "a", "env": "SET"}, "secrets[0].env", "is also a variable in env"),
        ({"name": "a", "env": "ROLE"}, "secrets[0].env", "is also a variable in env of role r"),
        ({"name": "a", "file": "../a"}, "secrets[0].file", "is not a valid file name"),
        ({"name": "a", "file": "a/b"}, "secrets[0].file", "is not a valid file name"),
        ({"name": "a", "file": ".."}, "secrets[0].file", "is not a valid file name"),
        ({"name": "a", "value": "b"}, "secrets[0].value", "unknown key"),
    ],
)
def test_invalid_secret_is_rejected(use: dict[str, Any], path: str, message: str) -> None:
    role = {"name": "r", "env": {"ROLE": "1"}}
    assert find_problems(document(use, env={"SET": "1"}, roles=[role])) == {path: message}


def test_two_secrets_cannot_share_a_variable_or_file() -> None:
    file = {"name": "key", "file": "key"}
    twice = "is used for two secrets"
    assert find_problems(document(TOKEN, {**TOKEN, "name": "other"})) == {"secrets[1].env": twice}
    assert find_problems(document(file, role=(file,))) == {"roles[0].secrets[0].file": twice}
    parse_workload(document(TOKEN, {"name": "hf-token", "file": "HF_TOKEN"}))


def test_secret_cannot_set_a_variable_that_env_also_sets() -> None:
    role = {"name": "r", "env": {"HF_TOKEN": "1"}, "secrets": [TOKEN]}
    assert find_problems(document(roles=[role])) == {"roles[0].secrets[0].env": "is also a variable in env"}
