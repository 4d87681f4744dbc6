"""Tests for declared plugins and environments and for stored secrets."""

import json
from typing import Any

import pytest
from django.db import connection

from berth.core.errors import Invalid
from pools.joining.sealed import UnsealError, unseal
from pools.models import Environment, NodePool, PluginSecret
from pools.plugins import Plugin, registry
from pools.plugins.parameters import parameter_schema
from pools.plugins.registry import RegisteredPlugin
from pools.services import create_pool, edit_pool
from pools.services.environments import environment_secrets
from projects.models import Audit
from tests.cast import Cast, make_cast

TOKEN = "hf_verysecrettoken"


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


def create(cast: Cast, **values: Any) -> NodePool:
    shape = {"provider": "fake", "runtime": "fake", "gpus_per_node": 8, "gpu_model": "H100"}
    pool = create_pool(actor=cast.alice, name="train", nodes=2, **{**shape, **values})
    return NodePool.objects.get(pk=pool.pk)


def edit(cast: Cast, pool: NodePool, **changes: Any) -> NodePool:
    edit_pool(actor=cast.alice, pool=pool, changes=changes)
    return NodePool.objects.get(pk=pool.pk)


def problems(cast: Cast, **values: Any) -> list[str]:
    with pytest.raises(Invalid) as rejection:
        create(cast, **values)
    assert not NodePool.objects.filter(name="train").exists()
    return [str(problem) for problem in rejection.value.problems]


def dump_all_rows() -> str:
    with connection.cursor() as cursor:
        rows = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            rows += cursor.fetchall()
    return repr(rows)


@pytest.mark.shows("PLG-01", "PLG-08", "PLG-47")
def test_declared_plugins_form_one_environment_in_order(cast: Cast) -> None:
    pool = create(
        cast, provider="aws", runtime="ray",
        provider_settings={"region": "us-east-1", "instance_types": ["g6.12xlarge"],
                           "subnets": ["subnet-0abc"], "image": "ami-0abc"},
        plugins=["jax", {"name": "keras"}, {"name": "mps", "parameters": {"thread_percentage": 50}}],
        environment={"python": "3.12", "pip": ["numpy>=2"], "env": {"GREETING": "it's me"}},
    )  # fmt: skip
    assert [plugin["name"] for plugin in pool.plugins] == ["jax", "keras", "mps"]
    built = pool.built_environment
    assert built is not None
    assert built.image["pip"][0] == "numpy>=2"
    assert built.image["pip"][-3:] == ["jax[cuda13]", "keras>=3", "jax"]
    assert built.image["env"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert "jax[cuda13]\nkeras>=3" in built.script
    assert """export GREETING='it'"'"'s me'""" in built.script
    assert built.phases == ["apt", "python", "pip", "code", "mps daemon"]


def test_environment_id_depends_only_on_its_content(cast: Cast) -> None:
    pool = create(cast, environment={"pip": ["numpy"]})
    first = pool.built_environment_id
    assert first is not None
    pool = edit(cast, pool, environment={"pip": ["numpy", "scipy"]})
    second = pool.built_environment_id
    assert second not in (None, first)
    pool = edit(cast, pool, environment={"pip": ["numpy"]}, drain_timeout=5)
    assert pool.built_environment_id == first
    assert Environment.objects.count() == 2
    pool = edit(cast, pool, environment={"pip": []})
    assert (pool.environment, pool.built_environment_id) == ({}, None)


def test_pool_edit_preserves_omitted_parts_of_the_environment(cast: Cast) -> None:
    pool = create(cast, environment={"python": "3.12", "apt": ["git"]})
    pool = edit(cast, pool, environment={"pip": ["numpy"]})
    assert pool.environment == {"python": "3.12", "apt": ["git"], "pip": ["numpy"]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"plugins": ["torhc"]}, "plugins[0].name: is not an installed plugin; received 'torhc'"),
        ({"plugins": ["torch", "torch"]}, "plugins[1].name: is listed twice; received 'torch'"),
        ({"plugins": [{"name": "torch", "parameters": {"bakend": "x"}}]},
         "plugins[0].parameters.bakend: unknown parameter. Did you mean `backend`?"),
        ({"plugins": [{"name": "mps", "parameters": {"thread_percentage": "50"}}]},
         "plugins[0].parameters.thread_percentage: is not a whole number; received '50'"),
        ({"plugins": "torch"}, "plugins: is not a list; received 'torch'"),
        ({"plugins": [{"plugin": "torch"}]}, "plugins[0]: has no name"),
        ({"plugins": [{"name": "torch", "params": {}}]}, "plugins[0].params: unknown key; allowed: name, p"),
        ({"plugins": [{"name": "accelerate", "parameters": {"fsdp": True, "deepspeed": True}}]},
         "plugins[0].parameters: the plugin accelerate cannot be created: ValueError: deepspeed and fsdp"),
        ({"environment": {"pip": ["--index-url=http://evil"]}}, "environment.pip[0]: is not allowed"),
        ({"environment": {"pip": ["a\nb"]}}, "environment.pip[0]: is not allowed"),
        ({"environment": {"pip": "numpy"}}, "environment.pip: is not a list; received 'numpy'"),
        ({"environment": {"pips": []}}, "environment.pips: unknown key; allowed: python, pip"),
        ({"environment": {"python": "3.9"}}, "environment.python: is not a valid Python version; received"),
        ({"environment": {"python": 3.12}}, "environment.python: is not text; received 3.12"),
        ({"environment": {"apt": ["git; reboot"]}}, "environment.apt[0]: is not allowed"),
        ({"environment": {"env": {"PATH": "/"}}}, "environment.env.PATH: is set by Berth"),
        ({"environment": {"env": {"A-B": "/"}}}, "environment.env: contains an invalid variable name"),
        ({"environment": {"env": {"A": 1}}}, "environment.env: is not a mapping of names to text values"),
        ({"environment": {"indexes": [{"url": "https://me:pw@host/simple"}]}},
         "environment.indexes[0].url: is not allowed; received (not shown)"),
        ({"environment": {"indexes": [{"packages": ["a"]}]}}, "environment.indexes[0]: has no url"),
        ({"environment": {"indexes": [{"url": "https://a/s"}, {"url": "https://b/s"}]}},
         "environment.indexes[1].packages: are missing; allowed: only one index may serve all other"),
    ],
)  # fmt: skip
def test_invalid_declaration_is_rejected_with_its_path(cast: Cast, values: Any, expected: str) -> None:
    assert problems(cast, **values)[0].startswith(expected)


@pytest.mark.shows("PLG-19")
def test_duplicate_plugin_names_are_rejected(cast: Cast) -> None:
    assert "is listed twice" in problems(cast, plugins=["jax", "keras", "jax"])[0]


@pytest.mark.parametrize("hook", ["transform", "bootstrap"])
def test_failing_hook_is_reported_on_save(cast: Cast, monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    def failing(*args: object) -> Any:
        raise RuntimeError("no licence")

    def licensed() -> Plugin:
        return getattr(Plugin.create("licensed"), f"with_{hook}")(failing)

    plugins_by_name = {
        **registry.available_plugins(),
        "licensed": RegisteredPlugin("licensed", licensed, parameter_schema(licensed)),
    }
    monkeypatch.setattr(registry, "available_plugins", lambda: plugins_by_name)
    monkeypatch.setattr("pools.plugins.declared.available_plugins", lambda: plugins_by_name)
    (message,) = problems(cast, plugins=["licensed"])
    assert message == f"plugins: the plugin licensed failed in {hook}: RuntimeError: no licence"


@pytest.mark.shows("PLG-41")
def test_plugin_token_is_stored_encrypted_and_never_returned(cast: Cast) -> None:
    pool = create(cast, plugins=["torch", {"name": "huggingface", "parameters": {"token": TOKEN}}])
    row = PluginSecret.objects.get(pool=pool)
    assert (row.plugin, row.parameter, row.variable) == ("huggingface", "token", "HF_TOKEN")
    assert unseal(row.sealed) == TOKEN
    assert pool.plugins[1] == {
        "name": "huggingface", "parameters": {}, "secrets_set": {"token": row.set_at.isoformat()},
    }  # fmt: skip
    assert TOKEN not in dump_all_rows()
    assert pool.built_environment is not None
    assert environment_secrets(pool, pool.built_environment) == {"HF_TOKEN": TOKEN}
    assert "huggingface login" in pool.built_environment.phases
    audit = json.dumps(list(Audit.objects.values_list("before", "after")))
    assert "secrets_set" in audit
    assert TOKEN not in audit


def test_plugin_token_is_kept_until_it_is_replaced_or_removed(cast: Cast) -> None:
    def token_env(pool: NodePool) -> dict[str, str]:
        return environment_secrets(pool, pool.built_environment)

    pool = create(cast, plugins=[{"name": "huggingface", "parameters": {"token": TOKEN}}])
    version = pool.version
    pool = edit(cast, pool, plugins=pool.plugins)  # send the plugins as in the response
    assert (token_env(pool), pool.version) == ({"HF_TOKEN": TOKEN}, version)
    pool = edit(cast, pool, plugins=["jax", "huggingface"])
    assert token_env(pool) == {"HF_TOKEN": TOKEN}
    pool = edit(cast, pool, plugins=[{"name": "huggingface", "parameters": {"token": "hf_other"}}])
    assert token_env(pool) == {"HF_TOKEN": "hf_other"}
    pool = edit(cast, pool, plugins=[{"name": "huggingface", "parameters": {"token": None}}])
    assert token_env(pool) == {}
    assert pool.built_environment is not None
    assert "huggingface login" not in pool.built_environment.phases
    pool = edit(cast, pool, plugins=[{"name": "huggingface", "parameters": {"token": TOKEN}}])
    edit(cast, pool, plugins=["jax"])
    assert not PluginSecret.objects.exists()


def test_older_secrets_can_be_decrypted_after_a_key_rotation(cast: Cast, settings: Any) -> None:
    pool = create(cast, plugins=[{"name": "huggingface", "parameters": {"token": TOKEN}}])
    before = settings.SECRET_KEY
    settings.SECRET_KEY = "another key"
    with pytest.raises(UnsealError):
        environment_secrets(pool, pool.built_environment)
    settings.SECRET_KEY_FALLBACKS = [before]
    assert environment_secrets(pool, pool.built_environment) == {"HF_TOKEN": TOKEN}
