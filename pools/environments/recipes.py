"""Load the scripts and secrets for installing environments on this machine."""

from pools.environments.local import Recipe
from pools.joining.sealed import UnsealError
from pools.models import Environment, Node, NodePool
from pools.models.node import ALIVE, PENDING
from pools.providers.base import ProviderError, ProviderErrorKind
from pools.services.environments import environment_secrets


def load_recipe(pool_name: str, digest: str) -> Recipe:
    """Return the recipe for installing an environment on a pool's nodes."""
    return _build_recipe(NodePool.objects.get(name=pool_name), Environment.objects.get(digest=digest))


def load_pending_recipes(pool_name: str) -> dict[str, Recipe]:
    """Return the recipes for a pool's pending nodes, keyed by instance ID."""
    pending = Node.objects.filter(pool__name=pool_name, state__in=PENDING).exclude(environment=None)
    rows = list(pending.select_related("pool", "environment"))
    row_by_digest = {row.environment_id: row for row in rows}
    recipe_by_digest = {
        digest: _build_recipe(row.pool, row.environment)
        for digest, row in row_by_digest.items()
        if row.environment
    }
    return {row.instance_id: recipe_by_digest[row.environment_id] for row in rows if row.environment_id}


def digests_in_use() -> frozenset[str]:
    """Return the digests of all environments that nodes or pools use."""
    nodes = Node.objects.filter(state__in=ALIVE).exclude(environment=None)
    pools = NodePool.objects.exclude(built_environment=None)
    node_digests = nodes.values_list("environment_id", flat=True)
    return frozenset(map(str, [*node_digests, *pools.values_list("built_environment_id", flat=True)]))


def _build_recipe(pool: NodePool, environment: Environment) -> Recipe:
    try:
        return Recipe(environment.digest, environment.script, environment_secrets(pool, environment))
    except UnsealError as error:
        raise ProviderError(ProviderErrorKind.SETTINGS, f"a plugin secret cannot be used: {error}") from error
