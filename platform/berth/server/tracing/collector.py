"""Send spans to the OTLP collector in batches.

The SDK reads its standard variables (OTEL_*). If the collector is unavailable, spans are lost, but no request
fails.
"""

import os
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def create_tracer(process: str) -> Any:
    service_name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"berth-{process}"}
    provider = TracerProvider(resource=Resource.create({**service_name, "berth.process": process}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("berth")
