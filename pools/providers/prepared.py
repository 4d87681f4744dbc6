"""Install the environment on nodes of this machine before they are ready."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pools.environments.local import Boot, EnvironmentsHere, Recipe
from pools.environments.progress import Progress
from pools.providers.base import (
    Instance,
    InstanceState,
    Provider,
    ProvisionOrder,
    ProvisionResult,
)


class PreparedHere:
    """`recipe(pool, digest)` is what an order's nodes are to have; `recipes(pool)`, by instance, what nodes
    are to have that are on their way."""

    machines_join = False

    def __init__(
        self, provider: Provider, environments: EnvironmentsHere,
        recipe: Callable[[str, str], Recipe], recipes: Callable[[str], Mapping[str, Recipe]],
    ) -> None:  # fmt: skip
        self.provider, self.environments = provider, environments
        self._recipe, self._recipes = recipe, recipes

    def provision(self, order: ProvisionOrder) -> ProvisionResult:
        if not order.environment:
            return self.provider.provision(order)
        recipe = self._recipe(order.pool, order.environment)
        result = self.provider.provision(order)
        return replace(result, instances=tuple(self._begun(made, recipe) for made in result.instances))

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        """One whose environment cannot be made is gone: its node is lost, with the reason."""
        coming = self._recipes(pool)
        listed = tuple(
            self._begun(each, coming[each.instance_id]) if each.instance_id in coming else each
            for each in self.provider.list_instances(pool)
        )
        ended = [instance.instance_id for instance in listed if instance.state is InstanceState.GONE]
        if ended:
            self.provider.terminate(pool, ended)
        return listed

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        for instance_id in instance_ids:
            self.environments.end(instance_id)
        self.provider.terminate(pool, instance_ids)

    def _begun(self, instance: Instance, recipe: Recipe) -> Instance:
        """As far as its script is; begun (again) where nobody is at it."""
        boot = self.environments.look(instance.instance_id, recipe.secrets)
        if boot is None:
            self.environments.begin(instance.instance_id, recipe)
            boot = self.environments.look(instance.instance_id, recipe.secrets) or Boot(Progress())
        told = tuple(each.to_dict() for each in boot.progress.phases)
        if boot.why:
            return replace(instance, state=InstanceState.GONE, phases=told, message=boot.why)
        booting = not boot.ready and instance.state is InstanceState.READY
        state = InstanceState.BOOTING if booting else instance.state
        return replace(instance, state=state, phases=told, prepared=boot.ready)
