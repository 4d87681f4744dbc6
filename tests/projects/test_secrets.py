"""Tests for the secrets of projects and pools."""

import base64
import json
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from berth.core.errors import Conflict, Forbidden, Invalid
from pools.models import NodePool
from pools.services.secrets import SecretContent, set_pool_secret
from projects.actor import Actor
from projects.models import Audit, Project, ProjectSecret, Workload
from projects.services import workloads
from projects.services.secrets import (
    RegistryAuth,
    UnusableSecret,
    delete_project_secret,
    registry_auths,
    secrets_by_name,
    set_personal_secret,
    set_project_secret,
    unseal_secret,
)
from projects.services.workloads import editing
from projects.services.workloads.checks.secrets import NONE_YET
from tests import factories as make
from tests.cast import Cast, training

TOKEN = "correct-horse-battery-staple"


def set_secret(
    actor: Actor, owner: Project | NodePool, name: str, value: str, *, registry: str = "", username: str = ""
) -> Any:
    content, now = SecretContent(value, registry=registry, username=username), timezone.now()
    if isinstance(owner, Project):
        return set_project_secret(actor=actor, project=owner, name=name, content=content, at=now)
    return set_pool_secret(actor=actor, pool=owner, name=name, content=content, at=now)


def set_login(actor: Actor, owner: Project | NodePool, name: str, registry: str, user: str) -> Any:
    return set_secret(actor, owner, name, f"{user}-password", registry=registry, username=user)


def logins(auth: str) -> dict[str, str]:
    entries = json.loads(auth)["auths"].items()
    return {registry: base64.b64decode(entry["auth"]).decode() for registry, entry in entries}


def secret_values(project: Project, pool: NodePool, names: list[str]) -> dict[str, str]:
    rows = secrets_by_name(project, pool)
    return {name: unseal_secret(rows[name]) for name in names}


def test_no_table_contains_a_secret_value(cast: Cast) -> None:
    set_secret(cast.carol, cast.vision, "hf-token", TOKEN)
    set_secret(cast.alice, cast.pool, "hf-token", TOKEN)
    set_secret(cast.alice, cast.pool, "registry", TOKEN, registry="docker.io", username="berth")
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}" AS row WHERE row::text LIKE %s', [f"%{TOKEN}%"])
            assert cursor.fetchone() == (0,), table
    assert secret_values(cast.vision, cast.pool, ["hf-token"]) == {"hf-token": TOKEN}


def test_project_secret_overrides_the_pool_secret(cast: Cast) -> None:
    set_secret(cast.alice, cast.pool, "key", "of the pool")
    set_secret(cast.carol, cast.vision, "key", "of the project")
    assert secret_values(cast.vision, cast.pool, ["key"]) == {"key": "of the project"}
    assert secret_values(cast.speech, cast.pool, ["key"]) == {"key": "of the pool"}
    delete_project_secret(actor=cast.carol, secret=ProjectSecret.objects.get())
    assert secret_values(cast.vision, cast.pool, ["key"]) == {"key": "of the pool"}


def registry_auth(project: Project, pool: NodePool) -> str:
    """Return a project's auth.json for a pool. The files of all projects are read together."""
    others = {(other.pk, pool.pk) for other in Project.objects.all()}
    auth = registry_auths({(project.pk, pool.pk), *others})[project.pk, pool.pk]
    assert isinstance(auth, RegistryAuth)
    return auth.json


def test_registry_auth_file_contains_project_and_pool_credentials(cast: Cast) -> None:
    assert registry_auth(cast.vision, cast.pool) == ""
    set_login(cast.alice, cast.pool, "hub", "docker.io", "pool")
    set_login(cast.alice, cast.pool, "own", "registry.example.org:5000", "pool")
    set_login(cast.carol, cast.vision, "own", "registry.example.org:5000", "vision")
    set_secret(cast.carol, cast.vision, "token", TOKEN)
    assert logins(registry_auth(cast.vision, cast.pool)) == {
        "docker.io": "pool:pool-password",
        "registry.example.org:5000": "vision:vision-password",
    }
    assert logins(registry_auth(cast.speech, cast.pool))["registry.example.org:5000"] == "pool:pool-password"


def test_registry_credentials_of_all_projects_are_loaded_in_two_queries(
    cast: Cast, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    set_login(cast.carol, cast.vision, "own", "registry.example.org:5000", "vision")
    with django_assert_num_queries(2):
        auths = registry_auths({(project.pk, cast.pool.pk) for project in (cast.vision, cast.speech)})
    assert auths[cast.speech.pk, cast.pool.pk] == RegistryAuth()


def test_pods_do_not_receive_registry_credentials(cast: Cast) -> None:
    set_login(cast.carol, cast.vision, "hub", "docker.io", "vision")
    assert not secrets_by_name(cast.vision, cast.pool)


def test_secret_history_records_each_change_without_the_value(cast: Cast) -> None:
    first, _ = set_login(cast.carol, cast.vision, "hub", "docker.io", "vision")
    set_secret(cast.carol, cast.vision, "hub", TOKEN)
    delete_project_secret(actor=cast.carol, secret=first)
    entries = [(row.action, row.actor, row.before, row.after) for row in Audit.objects.order_by("id")]
    login = {
        "secret": "hub", "kind": "registry", "version": "1", "registry": "docker.io", "username": "vision",
    }  # fmt: skip
    assert entries == [
        ("set_secret", "carol", None, login),
        ("set_secret", "carol", login, {"secret": "hub", "kind": "value", "version": "2"}),
        ("delete_secret", "carol", login, None),
    ]


def test_replaced_secret_keeps_its_creation_time(cast: Cast) -> None:
    created, is_new = set_secret(cast.carol, cast.vision, "key", "old")
    replaced, is_new_again = set_secret(cast.bob, cast.vision, "key", "new")
    assert (is_new, is_new_again) == (True, False)
    assert (replaced.pk, replaced.created_by, replaced.updated_by) == (created.pk, "carol", "bob")
    assert replaced.created_at == created.created_at < replaced.updated_at
    assert secret_values(cast.vision, cast.pool, ["key"]) == {"key": "new"}


def test_second_credential_for_a_registry_is_rejected(cast: Cast) -> None:
    set_login(cast.carol, cast.vision, "hub", "docker.io", "vision")
    with pytest.raises(Conflict, match=r"already has credentials for docker\.io in the secret hub"):
        set_login(cast.carol, cast.vision, "hub-2", "docker.io", "vision")
    assert ProjectSecret.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "values", "path"),
    [
        ("Key", {"value": TOKEN}, "name"),
        ("key", {"value": ""}, "value"),
        ("key", {"value": f"{TOKEN}\0"}, "value"),
        ("key", {"value": TOKEN + "x" * 64 * 1024}, "value"),
        ("key", {"value": TOKEN + "\ud800"}, "value"),
        ("key", {"value": "", "registry": "docker.io", "username": "a"}, "password"),
        ("key", {"value": TOKEN, "registry": "https://docker.io", "username": "a"}, "registry"),
        ("key", {"value": TOKEN, "registry": "docker.io", "username": "a:b"}, "username"),
        ("key", {"value": TOKEN, "username": "a"}, "registry"),
    ],
)
def test_error_for_an_invalid_secret_does_not_reveal_its_value(
    cast: Cast, name: str, values: dict[str, str], path: str
) -> None:
    with pytest.raises(Invalid) as caught:
        set_secret(cast.carol, cast.vision, name, **values)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert TOKEN not in str(caught.value.to_problem())
    assert TOKEN not in repr(SecretContent(TOKEN))
    assert not ProjectSecret.objects.exists()


def test_secret_encrypted_with_an_unavailable_key_is_reported(cast: Cast, settings: Any) -> None:
    set_secret(cast.carol, cast.vision, "key", TOKEN)
    settings.SECRET_KEY = "another key of this installation"
    with pytest.raises(UnusableSecret, match=r"key cannot be used: .* Set the secret again"):
        secret_values(cast.vision, cast.pool, ["key"])


# --- documents


def submit(cast: Cast, *names: str, **changes: Any) -> Workload:
    uses = [{"name": name, "env": f"SECRET_{number}"} for number, name in enumerate(names)]
    document = training(secrets=uses, **changes)
    return workloads.submit(actor=cast.dave, project=cast.vision, document=document)


def problems(cast: Cast, *names: str, **changes: Any) -> dict[str, tuple[str, str]]:
    with pytest.raises(Invalid) as rejected:
        submit(cast, *names, **changes)
    return {problem.path: (problem.message, problem.allowed) for problem in rejected.value.problems}


def test_document_may_use_secrets_of_its_project_and_pool(cast: Cast) -> None:
    set_secret(cast.carol, cast.vision, "own", TOKEN)
    set_secret(cast.alice, cast.pool, "shared", TOKEN)
    workload = submit(cast, "own", "shared")
    assert workload.spec["secrets"][0] == {"name": "own", "env": "SECRET_0"}
    assert TOKEN not in str(workload.spec)


def test_error_for_an_unknown_secret_suggests_the_nearest_name(cast: Cast) -> None:
    missing = "is not a secret of project vision or of its pools"
    assert problems(cast, "hf-tokn")["secrets[0].name"] == (missing, NONE_YET)
    set_secret(cast.alice, cast.pool, "hf-token", TOKEN)
    set_secret(cast.alice, cast.ads, "hf-tokn", TOKEN)
    assert problems(cast, "hf-tokn") == {"secrets[0].name": (missing, "Did you mean `hf-token`?")}


def test_unknown_secret_in_a_role_is_reported_at_its_field(cast: Cast) -> None:
    role = {"name": "r", "gpu": 1, "secrets": [{"name": "no", "file": "no"}]}
    assert list(problems(cast, roles=[role])) == ["roles[0].secrets[0].name"]


def test_registry_credentials_are_rejected_as_pod_secrets(cast: Cast) -> None:
    set_login(cast.carol, cast.vision, "hub", "docker.io", "vision")
    assert problems(cast, "hub")["secrets[0].name"][0] == (
        "contains credentials for a registry, which pods do not get"
    )


def test_workload_runs_only_in_pools_that_have_its_secrets(cast: Cast) -> None:
    other = make.pool("other")
    set_secret(cast.alice, other, "b", TOKEN)
    assert submit(cast, "b").pools == ["other"]
    assert problems(cast, "b", name="train-2", pools=["local", "other"]) == {
        "pools[0]": ("has no secret b, nor does project vision", "other")
    }
    set_secret(cast.alice, cast.pool, "a", TOKEN)
    assert problems(cast, "a", "b", name="train-2")["secrets"][0] == "are not all in the same pool"
    set_secret(cast.carol, cast.vision, "b", TOKEN)
    assert submit(cast, "a", "b", name="train-2").pools == ["local"]


PERSONAL_USE = {"name": "key", "env": "API_KEY", "personal": True}


def set_personal(actor: Actor, name: str, value: str) -> None:
    set_personal_secret(actor=actor, name=name, content=SecretContent(value), at=timezone.now())


def test_personal_secret_can_be_used_only_in_its_owners_workloads(cast: Cast) -> None:
    set_personal(cast.dave, "key", TOKEN)
    set_secret(cast.carol, cast.vision, "other", TOKEN)
    with pytest.raises(Invalid) as caught:
        workloads.submit(actor=cast.carol, document=training("hers", secrets=[PERSONAL_USE]))
    (problem,) = caught.value.problems
    assert problem.path == "secrets[0].name" and "is not one of your personal secrets" in problem.message
    with pytest.raises(Invalid):
        workloads.submit(actor=cast.dave, document=training("no", secrets=[PERSONAL_USE | {"name": "other"}]))
    with pytest.raises(Invalid):
        workloads.submit(
            actor=cast.dave, document=training("no", secrets=[{"name": "key", "env": "API_KEY"}])
        )
    workloads.submit(actor=cast.dave, document=training("his", secrets=[PERSONAL_USE]))


def test_project_admin_cannot_change_the_command_of_a_workload_with_a_personal_secret(cast: Cast) -> None:
    set_personal(cast.dave, "key", TOKEN)
    set_personal(cast.carol, "key", "hers")
    using = workloads.submit(actor=cast.dave, document=training("his", secrets=[PERSONAL_USE]))
    plain = workloads.submit(actor=cast.dave, document=training("plain"))
    replaced: dict[str, Any] = {"command": "env"}
    for workload, patch in (
        (using, replaced), (using, {"secrets": None, **replaced}), (plain, {"secrets": [PERSONAL_USE]}),
    ):  # fmt: skip
        with pytest.raises(Forbidden, match="uses personal secrets"):
            editing.edit(actor=cast.carol, workload=workload, patch=patch)
    editing.edit(actor=cast.carol, workload=plain, patch={"priority": 60})
    editing.edit(actor=cast.dave, workload=using, patch={"command": "env"})
