"""OpenTelemetry spans around provider calls."""

from collections.abc import Sequence

from berth.server.tracing.spans import Span, is_tracing_enabled, span
from pools.providers.base import Instance, LaunchRequest, Provider, ProviderError, ProvisionResult, Shape
from pools.providers.preview import Preview


def trace_provider(provider: Provider, kind: str) -> Provider:
    """Wrap a provider so that its calls become spans.

    If no collector is configured, return the provider unchanged.
    """
    return TracedProvider(provider, kind) if is_tracing_enabled() else provider


class TracedProvider:
    def __init__(self, provider: Provider, kind: str) -> None:
        self._provider = provider
        self._kind = kind

    @property
    def has_joining_machines(self) -> bool:
        return self._provider.has_joining_machines

    def provision(self, order: LaunchRequest) -> ProvisionResult:
        with self._call("provision", order.pool) as call_span:
            call_span.set_attributes(berth__nodes__requested=order.count)
            try:
                result = self._provider.provision(order)
            except ProviderError as error:
                call_span.set_attributes(berth__provider__error=str(error.kind))
                raise
            call_span.set_attributes(berth__nodes__provided=len(result.instances))
            return result

    def list_instances(self, pool: str) -> tuple[Instance, ...]:
        with self._call("list_instances", pool) as call_span:
            result = self._provider.list_instances(pool)
            call_span.set_attributes(berth__nodes__listed=len(result))
            return result

    def terminate(self, pool: str, instance_ids: Sequence[str]) -> None:
        with self._call("terminate", pool) as call_span:
            call_span.set_attributes(berth__nodes__requested=len(instance_ids))
            self._provider.terminate(pool, instance_ids)

    def preview(self, pool: str, shape: Shape) -> Preview:
        with self._call("preview", pool):
            return self._provider.preview(pool, shape)

    def _call(self, method: str, pool: str) -> Span:
        return span(f"provider {method}", berth__provider=self._kind, berth__pool=pool)
