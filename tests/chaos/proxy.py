"""A proxy in front of an MLflow server that answers some requests itself when told to."""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WRITES = ("log-batch", "set-tag", "runs/update", "runs/create", "log-metric", "log-parameter")
STATUSES = ("401", "403", "404", "429", "500", "502", "503")
ANSWERS = ("json", "html", "empty", "list", "cut", "reset", "slow", *STATUSES)
NOT_PASSED_ON = ("transfer-encoding", "connection", "content-length", "keep-alive", "host")


class Quiet(ThreadingHTTPServer):
    """Ignores clients that are killed during a request."""

    daemon_threads = True

    def handle_error(self, *arguments: Any) -> None:
        pass


class Proxy:
    """Forwards requests to a server at a port of this machine. `disturb` makes it answer some itself."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._answer, self._remaining, self._until, self._writes_only = "", 0, 0.0, True
        self.n_answered = 0  # requests that it answered itself since `disturb`
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = proxy._own_answer(self.path)
                if not answer or answer == "slow":
                    time.sleep(2.0 if answer else 0.0)
                    proxy._pass_on(self, body)
                else:
                    proxy._answer_itself(self, answer)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def disturb(self, answer: str, times: int, seconds: float, writes_only: bool = True) -> None:
        """Give this answer at most `times` times, for at most `seconds`."""
        self._answer, self._remaining, self._until, self.n_answered = answer, times, time.monotonic() + seconds, 0
        self._writes_only = writes_only

    def calm(self) -> None:
        self._remaining = 0

    @property
    def disturbed(self) -> bool:
        return self._remaining > 0 and time.monotonic() < self._until

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _own_answer(self, path: str) -> str:
        if not self.disturbed or (self._writes_only and not any(part in path for part in WRITES)):
            return ""
        self._remaining -= 1
        self.n_answered += 1
        return self._answer

    def _answer_itself(self, request: BaseHTTPRequestHandler, answer: str) -> None:
        request.close_connection = True
        if answer == "reset":
            request.connection.close()
            return
        bodies = {"json": b'{"hello": 1}', "html": b"<html>log in</html>", "list": b"[]", "cut": b'{"run": {"info'}
        body = bodies.get(answer, b"" if answer == "empty" else b"not now")
        request.send_response(int(answer) if answer in STATUSES else 200)
        request.send_header("Content-Length", str(500 if answer == "cut" else len(body)))
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(body)

    def _pass_on(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in NOT_PASSED_ON}
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=120)
        try:
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):  # as if there were no server
            request.close_connection = True
            return
        finally:
            connection.close()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in NOT_PASSED_ON:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)
