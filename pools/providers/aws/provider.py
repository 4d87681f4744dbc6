"""The EC2 provider: one launch per order, instances identified by tags, no state in memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from pools.providers.aws import fleet, instances, interruptions, network, tags, template
from pools.providers.aws.clients import Clients
from pools.providers.aws.errors import told_apart
from pools.providers.aws.machine_types import MachineTypes
from pools.providers.aws.settings import AwsSettings
from pools.providers.base import (
    Instance,
    InstanceState,
    ProviderError,
    ProvisionOrder,
    ProvisionResult,
)

ENDED_AT_ONCE = 500


class AwsProvider:
    """`installation` keeps those apart who share an account: each sees and ends only its own machines.

    `user_data` says what a machine of this order runs when it first boots: the same for the same order.
    """

    machines_join = True

    def __init__(
        self, settings: AwsSettings, clients: Clients, installation: str, *,
        user_data: Callable[[ProvisionOrder], str],
    ) -> None:  # fmt: skip
        self.settings, self.clients, self.installation = settings, clients, installation
        self._user_data = user_data
        self._types = MachineTypes(clients)

    def provision(self, order: ProvisionOrder) -> ProvisionResult:
        """What carries the order's tag is the answer to it. Where nothing does, EC2 is asked under the
        order's client token, and answers as it did if it was asked before: tags may show a little late."""
        with told_apart():
            made, message = self._described(self._tags(order), gone_too=True), ""
            ids = sorted(made)
            if not ids:
                launched = self._launch(order)
                ids, message = sorted(launched.instance_ids), fleet.why(launched)
                if not ids:
                    raise fleet.none_came(launched)
                made = self._described(self._tags(order), gone_too=True)
            numbered = instances.ordinals(order, ids, made)
        with suppress(ProviderError), told_apart():  # rows know the number, the tag is for people
            instances.write_down(self.clients, order.pool, numbered, made)
        return ProvisionResult(self._answer(order, numbered, made), message)

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        with told_apart():
            ours = tags.of_pool(self.installation, pool)
            found = self._described(ours).values()
            spot = {told["InstanceId"] for told in found if instances.is_spot(told)}
            leaving = interruptions.interruptions(self.clients, ours, spot)
            gpus = self._gpus(found)
        listed = [
            instances.instance(told, gpus[told["InstanceType"]], interruption=leaving.get(told["InstanceId"]))
            for told in found
        ]
        return tuple(sorted(listed, key=lambda instance: (instance.ordinal, instance.instance_id)))

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        """Only what carries our tags, and is not gone: any other id is left alone."""
        with told_apart():
            living = self._described(tags.of_pool(self.installation, pool))
            ending = sorted(living.keys() & set(instance_ids))
            for start in range(0, len(ending), ENDED_AT_ONCE):
                self.clients.ec2.terminate_instances(InstanceIds=ending[start : start + ENDED_AT_ONCE])

    def _launch(self, order: ProvisionOrder) -> fleet.Launched:
        settings, user_data = self.settings, self._user_data(order)
        self._types.require(settings.instance_types, order.shape)
        groups = settings.security_groups or (
            network.security_group(self.clients, self.installation, order.pool, settings.subnets),
        )
        templates = template.launch_templates(
            self.clients, settings, self.installation, order.pool,
            image=template.image_id(self.clients, settings), groups=groups,
        )  # fmt: skip
        asked = fleet.Launch(order.client_token, templates, user_data, self._tags(order))
        return fleet.launch(self.clients, settings, asked, order.count)

    def _tags(self, order: ProvisionOrder) -> dict[str, str]:
        ours = tags.of_pool(self.installation, order.pool)
        return {**order.tags, **ours, tags.ORDER: order.client_token}

    def _described(self, wanted: Mapping[str, str], *, gone_too: bool = False) -> dict[str, instances.Told]:
        found = instances.described(self.clients, wanted, gone_too=gone_too)
        return {told["InstanceId"]: told for told in found}

    def _gpus(self, found: Iterable[instances.Told]) -> dict[str, int]:
        names = sorted({told["InstanceType"] for told in found})
        return {known.name: known.gpus for known in self._types.known(names)}

    def _answer(
        self, order: ProvisionOrder, numbered: Mapping[str, int], made: Mapping[str, instances.Told]
    ) -> tuple[Instance, ...]:
        """A machine that no listing shows yet is on its way."""
        devices = tuple(str(index) for index in range(order.shape.gpus))
        answered = []
        for instance_id, ordinal in instances.in_order(numbered):
            told = made.get(instance_id)
            answered.append(
                Instance(instance_id, ordinal, InstanceState.BOOTING, order.client_token, "", devices)
                if told is None
                else instances.instance(told, order.shape.gpus, ordinal=ordinal)
            )
        return tuple(answered)
