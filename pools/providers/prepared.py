"""Install environments on this machine before its nodes become ready."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pools.environments.local import InstallStatus, LocalEnvironments, Recipe
from pools.environments.progress import Progress
from pools.providers.base import (
    Instance,
    InstanceState,
    LaunchRequest,
    Provider,
    ProvisionResult,
    Shape,
)
from pools.providers.preview import Preview


class PreparedNodes:
    """Provider wrapper that reports instances as booting until their environment is installed on this
    machine.

    `recipe(pool, digest)` returns the environment's recipe for a launch request, and `recipes(pool)` returns
    the recipes of booting nodes, keyed by instance ID.
    """

    has_joining_machines = False

    def __init__(
        self, provider: Provider, environments: LocalEnvironments,
        recipe: Callable[[str, str], Recipe], recipes: Callable[[str], Mapping[str, Recipe]],
    ) -> None:  # fmt: skip
        self.provider, self.environments = provider, environments
        self._recipe, self._recipes = recipe, recipes

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        if not order.environment:
            return self.provider.provision(order)
        recipe = self._recipe(order.pool, order.environment)
        result = self.provider.provision(order)
        return replace(
            result,
            instances=tuple(self._with_progress(new_instance, recipe) for new_instance in result.instances),
        )

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        """Return the instances. Terminate instances whose installation failed, and report them as gone."""
        pending_recipes = self._recipes(pool)
        listed = tuple(
            self._with_progress(instance, pending_recipes[instance.instance_id])
            if instance.instance_id in pending_recipes
            else instance
            for instance in self.provider.list_instances(pool)
        )
        failed_ids = [instance.instance_id for instance in listed if instance.state is InstanceState.GONE]
        if failed_ids:
            self.provider.terminate(pool, failed_ids)
        return listed

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        for instance_id in instance_ids:
            self.environments.end(instance_id)
        self.provider.terminate(pool, instance_ids)

    def preview(self, pool: str, shape: Shape) -> Preview:
        return self.provider.preview(pool, shape)

    def _with_progress(self, instance: Instance, recipe: Recipe) -> Instance:
        """Return the instance with its installation's progress, and start the installation if necessary."""
        boot = self.environments.get_status(instance.instance_id, recipe.secrets)
        if boot is None:
            self.environments.begin_installation(instance.instance_id, recipe)
            boot = self.environments.get_status(instance.instance_id, recipe.secrets) or InstallStatus(
                Progress()
            )
        phases = tuple(phase.to_dict() for phase in boot.progress.phases)
        if boot.failure:
            return replace(instance, state=InstanceState.GONE, phases=phases, message=boot.failure)
        is_booting = not boot.ready and instance.state is InstanceState.READY
        state = InstanceState.BOOTING if is_booting else instance.state
        return replace(instance, state=state, phases=phases, prepared=boot.ready)
