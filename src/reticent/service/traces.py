"""A span for each request, for OpenTelemetry: method, route and status, and when. No names, no data.

Only whole requests have one. Replies to questions leave on the time grid, and so do these spans; a span of
reading rows, or of drawing, would tell how long that took, and there is none. A trace that a caller began
goes on here (W3C `traceparent`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TextIO

from starlette.types import Scope

from reticent.errors import MissingExtra, ParameterError
from reticent.service.metrics import METHODS

_SERVICE = "reticent"


class Traces:
    """Spans of one process, sent by a thread of their own.

    Args:
        where: the address of a collector that takes OTLP over HTTP, or a file that they are appended to.
    """

    def __init__(self, where: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
            from opentelemetry.trace.propagation import tracecontext
        except ImportError as error:
            raise MissingExtra("traces", "traces") from error
        self._trace, self._begun = trace, tracecontext.TraceContextTextMapPropagator()
        self._provider = TracerProvider(resource=Resource({"service.name": _SERVICE}), shutdown_on_exit=False)
        self._file: TextIO | None = None
        if where.startswith(("http://", "https://")):
            exporter = _sending(where)
        else:
            self._file = _opened(where)
            exporter = ConsoleSpanExporter(
                out=self._file, formatter=lambda span: f"{span.to_json(indent=None)}\n"
            )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_SERVICE)

    def note(self, scope: Scope, route: str | None, status: int, passed_s: float) -> None:
        """One request that was answered just now."""
        end = time.time_ns()
        method = scope["method"] if scope["method"] in METHODS else "other"
        given = {k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k == b"traceparent"}
        span = self._tracer.start_span(
            f"{method} {route or 'none'}",
            context=self._begun.extract(given),
            kind=self._trace.SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route or "none",
                "http.response.status_code": status,
            },
            start_time=end - round(passed_s * 1e9),
        )
        span.end(end)

    def close(self) -> None:
        """Send what waits."""
        self._provider.shutdown()
        if self._file is not None:
            self._file.close()


def _sending(where: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise MissingExtra("traces", "traces") from error
    return OTLPSpanExporter(endpoint=where)


def _opened(where: str) -> TextIO:
    try:
        return Path(where).open("a", encoding="utf-8")
    except OSError as error:
        raise ParameterError(
            f"traces must be an address or a file, got {where} ({error.strerror})"
        ) from error
