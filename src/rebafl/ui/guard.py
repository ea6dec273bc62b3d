"""Who may see the page? Whoever has the address that was printed, on this machine, and no page of another origin.

The address holds a token that works once; for it the browser gets a cookie that it sends with requests of this page
only (SameSite=Strict). The names under which this server may be addressed are checked (Host), against pages whose name
was made to lead here, and where a request comes from (Origin), against pages of others.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .assets import PAGE_POLICY

TOKEN = "token"
READS = ("GET", "HEAD")


class Guard:
    """Stands before the application; what it does not let through is answered with 403."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self.cookie = f"rebafl_{port}"  # browsers do not tell cookies of different ports apart
        self.token, self._secret = secrets.token_urlsafe(24), secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        fresh = not refusal and not self._has_cookie(headers)
        if fresh and not self._takes_token(scope):
            refusal = "Open the address that `rebafl ui` printed; it works once, in one browser."
        if refusal:
            await self._secured(PlainTextResponse(refusal, 403), fresh=False)(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._secure(MutableHeaders(scope=message), fresh)
            await send(message)

        await self.app(scope, receive, send_secured)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> str:
        if headers.get("host") not in self.hosts:
            return "This server is not known by that name."
        origin = headers.get("origin")
        if origin is None:
            return "" if scope["method"] in READS else "A change must say where it comes from."
        return "" if origin == f"http://{headers['host']}" else "Pages of other origins may not ask this server."

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        try:
            sent = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return sent is not None and secrets.compare_digest(sent.value.encode(), self._secret.encode())

    def _takes_token(self, scope: Scope) -> bool:
        """Is this the first to come with the token? Then it is used up."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN, [""])[0]
        good = bool(self.token) and scope["path"] == "/" and secrets.compare_digest(given.encode(), self.token.encode())
        if good:
            self.token = ""
        return good

    def _secured(self, response: Response, fresh: bool) -> Response:
        self._secure(response.headers, fresh)
        return response

    def _secure(self, headers: MutableHeaders, fresh: bool) -> None:
        headers.setdefault("content-security-policy", PAGE_POLICY)
        headers["x-content-type-options"] = "nosniff"
        headers["referrer-policy"] = "no-referrer"
        headers["cross-origin-resource-policy"] = "same-origin"
        headers["cross-origin-opener-policy"] = "same-origin"
        headers["cache-control"] = "no-store"
        if fresh:
            headers.append("set-cookie", f"{self.cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict")
