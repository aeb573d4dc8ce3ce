"""A proxy between us and a server, which answers some requests in the server's place."""

import http.server
import threading
from collections.abc import Callable
from typing import Any, Self

import requests

Answer = tuple[int, bytes, int]  # status, body, bytes of the body that are missing


def everything(method: str, path: str) -> bool:
    return True


def writes(method: str, path: str) -> bool:
    return method in ("POST", "PATCH", "PUT") and not path.endswith("/search")


def points(method: str, path: str) -> bool:
    return path.endswith("/log-batch")


class Between:
    """Passes requests on to `target`; as long as `garbled` holds answers, requests that are `chosen` get the last."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.garbled: list[Answer] = []
        self.chosen: Callable[[str, str], bool] = everything
        self.passed: list[str] = []
        between = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                self.reply(*between.answer(self.command, self.path, self.headers.get("content-type", ""), body))

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = answer

            def reply(self, status: int, content: bytes, missing: int) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(content) + missing))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._site.server_port}"

    def answer(self, method: str, path: str, kind: str, body: bytes) -> Answer:
        if self.garbled and self.chosen(method, path):
            return self.garbled.pop()
        self.passed.append(path)
        reply = requests.request(method, self.target + path, data=body, headers={"content-type": kind}, timeout=30)
        return reply.status_code, reply.content, 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._site.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._site.shutdown()
        self._site.server_close()
