"""A web server that can be told to break off."""

from http.server import BaseHTTPRequestHandler
from typing import ClassVar


class Server(BaseHTTPRequestHandler):
    """Serves `files` by name, else `content`, in ranges if asked; `limit` cuts the connection after so many bytes."""

    content: bytes = b""
    files: ClassVar[dict[str, bytes]] = {}
    limit: int | None = None
    ranges: bool = True
    seen: ClassVar[list[str | None]] = []

    def do_GET(self):
        start, content = 0, self.files.get(self.path.rpartition("/")[2], self.content)
        asked = self.headers.get("Range")
        type(self).seen.append(asked)
        if self.path.endswith("missing"):
            self.send_error(404)
            return
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : start + self.limit if self.limit else None])

    def log_message(self, *args):
        pass
