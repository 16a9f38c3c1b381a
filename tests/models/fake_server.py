import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeServer:
    """A chat server on loopback that does what ``behave(body, number)`` says.

    It returns (status, headers, payload); a payload that is no string is sent as JSON.
    """

    def __init__(self):
        self.bodies, self.headers, self.paths = [], [], []
        self.behave = lambda body, number: (200, {}, choices("[]"))
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                fake.handle(self)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def handle(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.bodies.append(body)
            self.headers.append(dict(handler.headers))
            self.paths.append(handler.path)
            number = len(self.bodies)
        status, headers, payload = self.behave(body, number)
        raw = (payload if isinstance(payload, str) else json.dumps(payload)).encode()
        try:
            handler.send_response(status)
            for name, value in {"Content-Length": str(len(raw)), **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(raw)
        except OSError:
            pass  # the client gave up waiting

    def close(self):
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def choices(*contents, finish="stop"):
    return {"choices": [{"message": {"role": "assistant", "content": c}, "finish_reason": finish} for c in contents]}


def asked(body):
    """The question of a request, without the wish for a number."""
    return body["messages"][-1]["content"].partition("\n")[0]
