"""EC2 provider that keeps no state in memory. Tags identify each launch request's instances."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from pools.providers.aws import fleet, instances, interruptions, network, tags, template
from pools.providers.aws.clients import Clients
from pools.providers.aws.errors import translate_sdk_errors
from pools.providers.aws.machine_types import MachineTypes
from pools.providers.aws.settings import AwsSettings
from pools.providers.base import (
    Instance,
    InstanceState,
    LaunchRequest,
    ProviderError,
    ProvisionResult,
    Shape,
)
from pools.providers.preview import Preview

TERMINATE_BATCH_SIZE = 500


class AwsProvider:
    """Provider of EC2 instances.

    `installation` distinguishes this installation's instances from others in the account. `user_data` returns
    the first-boot script for a launch request. The script must never change for the same request.
    """

    has_joining_machines = True

    def __init__(
        self, settings: AwsSettings, clients: Clients, installation: str, *,
        user_data: Callable[[LaunchRequest], str],
    ) -> None:  # fmt: skip
        self.settings, self.clients, self.installation = settings, clients, installation
        self._user_data = user_data
        self._types = MachineTypes(clients)

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        """Return the launch request's instances.

        Launch them first if there are none. Tags may appear late, so a repeated launch uses the same client
        token, for which EC2 launches no further instances.
        """
        with translate_sdk_errors():
            description_by_id, message = (
                self._describe_tagged_instances(self._launch_tags(order), include_terminated=True),
                "",
            )
            ids = sorted(description_by_id)
            if not ids:
                launched = self._launch(order)
                ids, message = sorted(launched.instance_ids), fleet.shortfall_reason(launched)
                if not ids:
                    raise fleet.no_instances_error(launched)
                description_by_id = self._describe_tagged_instances(
                    self._launch_tags(order), include_terminated=True
                )
            ordinal_by_id = instances.assign_ordinals(order, ids, description_by_id)
        with (
            suppress(ProviderError),
            translate_sdk_errors(),
        ):  # ignore errors: the ordinal is stored in the database, and the tag only informs users
            instances.tag_ordinals(self.clients, order.pool, ordinal_by_id, description_by_id)
        return ProvisionResult(self._instances(order, ordinal_by_id, description_by_id), message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        with translate_sdk_errors():
            pool_tags = tags.tags_for_pool(self.installation, pool)
            descriptions = self._billable_or_interrupted_instances(pool_tags)
            spot_ids = {
                description["InstanceId"] for description in descriptions if instances.is_spot(description)
            }
            interruption_by_id = interruptions.upcoming_interruptions(self.clients, pool_tags, spot_ids)
            gpus = self._gpus_by_machine_type(descriptions)
        listed = [
            instances.to_instance(
                description,
                gpus[description["InstanceType"]],
                interruption=interruption_by_id.get(description["InstanceId"])
                or interruptions.past_interruption(description),
            )
            for description in descriptions
        ]
        return tuple(sorted(listed, key=lambda instance: (instance.ordinal, instance.instance_id)))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Terminate the given instances that belong to both the pool and the installation.

        Ignore all other IDs.
        """
        with translate_sdk_errors():
            living = self._describe_tagged_instances(tags.tags_for_pool(self.installation, pool))
            ids_to_end = sorted(living.keys() & set(instance_ids))
            for start in range(0, len(ids_to_end), TERMINATE_BATCH_SIZE):
                self.clients.ec2.terminate_instances(
                    InstanceIds=ids_to_end[start : start + TERMINATE_BATCH_SIZE]
                )

    def preview(self, pool: str, shape: Shape) -> Preview:
        """Check the credentials, the instance types and the machine image without launching anything."""
        with translate_sdk_errors():
            self._types.check_fit(self.settings.instance_types, shape)
            image = template.resolve_image_id(self.clients, self.settings)
        types = ", ".join(self.settings.instance_types)
        return Preview(f"EC2 in {self.settings.region}: {types} with the image {image}")

    def _launch(self, order: LaunchRequest) -> fleet.LaunchResult:
        settings, user_data = self.settings, self._user_data(order)
        self._types.check_fit(settings.instance_types, order.shape)
        groups = settings.security_groups or (
            network.ensure_security_group(self.clients, self.installation, order.pool, settings.subnets),
        )
        templates = template.ensure_launch_templates(
            self.clients, settings, self.installation, order.pool,
            image=template.resolve_image_id(self.clients, settings), groups=groups,
        )  # fmt: skip
        request = fleet.FleetLaunch(order.client_token, templates, user_data, self._launch_tags(order))
        return fleet.launch(self.clients, settings, request, order.count)

    def _launch_tags(self, order: LaunchRequest) -> dict[str, str]:
        pool_tags = tags.tags_for_pool(self.installation, order.pool)
        return {**order.tags, **pool_tags, tags.ORDER: order.client_token}

    def _describe_tagged_instances(
        self, tags: Mapping[str, str], *, include_terminated: bool = False
    ) -> dict[str, instances.Description]:
        descriptions = instances.describe_instances(self.clients, tags, include_terminated=include_terminated)
        return {description["InstanceId"]: description for description in descriptions}

    def _billable_or_interrupted_instances(self, tags: Mapping[str, str]) -> list[instances.Description]:
        """Return instances that may cost money, and interrupted spot instances."""
        buys_spot = self.settings.purchase != "on_demand"
        descriptions = self._describe_tagged_instances(tags, include_terminated=buys_spot)
        return [
            description
            for description in descriptions.values()
            if description["State"]["Name"] not in instances.UNLISTED_STATES
            or interruptions.past_interruption(description) is not None
        ]

    def _gpus_by_machine_type(self, descriptions: Iterable[instances.Description]) -> dict[str, int]:
        names = sorted({description["InstanceType"] for description in descriptions})
        return {machine_type.name: machine_type.gpus for machine_type in self._types.get(names)}

    def _instances(
        self,
        order: LaunchRequest,
        ordinal_by_id: Mapping[str, int],
        description_by_id: Mapping[str, instances.Description],
    ) -> tuple[Instance, ...]:
        """Return the launch request's instances. Those that EC2 does not list yet count as booting."""
        devices = tuple(str(index) for index in range(order.shape.gpus))
        result = []
        for instance_id, ordinal in instances.sorted_by_ordinal(ordinal_by_id):
            description = description_by_id.get(instance_id)
            result.append(
                Instance(instance_id, ordinal, InstanceState.BOOTING, order.client_token, "", devices)
                if description is None
                else instances.to_instance(description, order.shape.gpus, ordinal=ordinal)
            )
        return tuple(result)
