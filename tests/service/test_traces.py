"""Spans for OpenTelemetry: whole requests by method, route and status, and nothing of data."""

import http.server
import json
import threading

import pytest

from .running import BASE, MEAN

pytest.importorskip("opentelemetry.sdk", reason="the extra `traces` is not installed")
TRACE = "0af7651916cd43dd8448eb211c80319c"
ATTRIBUTES = {"http.request.method", "http.route", "http.response.status_code"}


def asked(serving, where):
    """A service whose spans are sent when it ends, once something was asked; what it was answered."""
    service = serving(traces=str(where), longest_s=3600.0)
    answer = service.ask("alice", MEAN).json()
    service.get("alice", f"{BASE}/budget", headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    service.call("alice", "BREW", "/api/v1/a-secret-path")
    service.app.state.traces.close()
    return answer


def leaks(text, answer):
    """What of a question, its answer, its asker or its data set is in a text."""
    values = [str(cell["value"]) for cell in answer["cells"]] + [answer["cost"]]
    words = ["census", "income", "alice", "a-secret-path", "rk_", *values]
    return [one for one in words if one in text]


def test_spans_in_a_file(serving, tmp_path):
    answer = asked(serving, tmp_path / "spans")
    text = (tmp_path / "spans").read_text()
    spans = [json.loads(line) for line in text.splitlines()]
    assert {one["name"] for one in spans} >= {
        "POST /api/v1/datasets/{name}/ask",
        "GET /api/v1/datasets/{name}/budget",
        "other none",
    }
    assert all(set(one["attributes"]) == ATTRIBUTES and not one["events"] for one in spans)
    assert [one["context"]["trace_id"] for one in spans if one["name"].endswith("/budget")] == [f"0x{TRACE}"]
    assert leaks(text, answer) == []


def test_planted_a_span_with_the_path_is_caught(serving, tmp_path, monkeypatch):
    from reticent.service import traces

    note = traces.Traces.note
    monkeypatch.setattr(
        traces.Traces, "note", lambda self, scope, route, *rest: note(self, scope, scope["path"], *rest)
    )
    answer = asked(serving, tmp_path / "spans")
    assert "census" in leaks((tmp_path / "spans").read_text(), answer)


def test_spans_at_a_collector(serving, monkeypatch):
    """Over HTTP, to a real listener."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "600")  # it would drop spans after ten seconds
    bodies = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            answer = asked(serving, f"http://127.0.0.1:{server.server_address[1]}/v1/traces")
        finally:
            server.shutdown()
            thread.join()
    text = b"".join(bodies).decode("latin-1")
    assert "/api/v1/datasets/{name}/ask" in text
    assert leaks(text, answer) == []
