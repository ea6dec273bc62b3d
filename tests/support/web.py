"""A web server that can be told to break off."""

from http.server import BaseHTTPRequestHandler
from typing import ClassVar


class Server(BaseHTTPRequestHandler):
    """Serves `content`, in ranges if asked; `limit` cuts the connection after so many bytes."""

    content: bytes = b""
    limit: int | None = None
    ranges: bool = True
    seen: ClassVar[list[str | None]] = []

    def do_GET(self):
        start = 0
        asked = self.headers.get("Range")
        type(self).seen.append(asked)
        if self.path.endswith("missing"):
            self.send_error(404)
            return
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(self.content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start : start + self.limit if self.limit else None])

    def log_message(self, *args):
        pass
