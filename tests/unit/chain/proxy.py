"""A JSON-RPC server between a test and anvil: it forwards, and hooks may change what is said."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests


class Proxy:
    """Forwards to a node until the `with` block ends.

    Args:
        target: the node's address; without, every answer must come from a hook.
        call: (method, parameters, forward) -> result; raises `Refused` for an error. Called for each call.
        message: (body, forward) -> (status, bytes) or an answer to send as JSON. Called for each message; it
            sees batches.
    """

    def __init__(self, target=None, *, call=None, message=None):
        self.target, self.call, self.message = target, call, message
        self.methods, self.batches = [], 0
        self._session = requests.Session()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, content = proxy._answered(body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _answered(self, body):
        self.batches += isinstance(body, list)
        answer = self.message(body, self._forward) if self.message else self._forward(body)
        return answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())

    def _forward(self, body):
        if isinstance(body, list):
            return [self._forward(one) for one in body]
        self.methods.append(body["method"])
        told = {"jsonrpc": "2.0", "id": body["id"]}
        try:
            if self.call is None:
                return told | {"result": self._asked(body["method"], body["params"])}
            return told | {"result": self.call(body["method"], body["params"], self._asked)}
        except Refused as refusal:
            return told | {"error": refusal.error}

    def _asked(self, method, parameters):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer = self._session.post(self.target, json=body, timeout=120).json()
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()
        self._session.close()


class Refused(Exception):
    def __init__(self, error):
        self.error = error if isinstance(error, dict) else {"code": -32000, "message": error}
