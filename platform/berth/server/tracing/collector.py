"""Send spans to the OTLP collector in batches from a separate thread.

Addresses, headers, certificates, sampling and the size of queues are read by the SDK from its usual
variables (OTEL_*). A collector that is away costs spans, never a request.
"""

import os
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def tracer(process: str) -> Any:
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"berth-{process}"}
    provider = TracerProvider(resource=Resource.create({**named, "berth.process": process}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("berth")
