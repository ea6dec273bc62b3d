"""What can the page ask for? Runs, their rounds and maps as they grow; and to start, stop and resume them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.config import Plain
from ..base.errors import UserError, exists
from ..federation.ops.layout import DESCRIPTION
from .assets import SCRIPTS, STATIC, STYLES, page
from .cells import STATES
from .control import Control
from .folder import Folder
from .form import form
from .paper_page import find_paper_page, paper_html
from .run_view import LINKS, RunView

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from .guard import Guard

TYPES = {".js": "text/javascript", ".css": "text/css"}
LINKED_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
MOST_BODY = 100_000  # bytes of a request


class Views:
    """All that is looked at; one request at a time, since what was read is kept for the next."""

    def __init__(self, places: Sequence[Path], own_code: bool) -> None:
        self.folder = Folder(places)
        self.control = Control(places[0], own_code)
        self.lock = threading.Lock()
        self._views: dict[str, RunView] = {}

    def view(self, name: str) -> RunView:
        path = self.folder.path(name)
        if name not in self._views:
            self._views[name] = RunView(path)
        view = self._views[name]
        view.look()
        return view

    def runs(self, _: Plain) -> Any:
        around = {"home": str(self.control.home), "paper": self.paper_page() is not None}
        return {**self.folder.table(), "jobs": self.control.plain(), **around}

    def paper_page(self) -> Path | None:
        return find_paper_page(self.folder.places)

    def run(self, asked: Plain) -> Any:
        view, first = self.view(asked["run"]), int(asked.get("since", 0))
        held = view.holdings()
        news = held is not None and len(held.counts) != asked.get("known", len(held.counts))
        first = first if first <= len(view.lines) and not news else 0  # with more known, all shares are others
        answer = {"facts": {**view.facts(), "id": asked["run"]}, "rounds": view.rounds_from(first)}
        return answer if first else {**answer, "details": view.details(), "states": STATES}

    def curves(self, asked: Plain) -> Any:
        return self.folder.curves(asked["runs"], asked.get("since") or [0] * len(asked["runs"]))

    def prototypes(self, asked: Plain) -> Any:
        return self.view(asked["run"]).prototypes()

    def nodes(self, asked: Plain) -> Any:
        """The nodes of a federation on this machine, as `rebafl federation status` shows them."""
        folder = self.folder.path(asked["run"]).parent
        if not exists(folder / DESCRIPTION):
            return None
        from ..federation.ops.local import LocalFederation  # Flower need not be installed

        return LocalFederation(folder).status()

    def form(self, _: Plain) -> Any:
        return {**form(), "own_code": self.control.own_code}

    def start(self, asked: Plain) -> Any:
        return {"run": self.control.start(asked.get("words", {}), str(asked.get("name", "")))}

    def stop(self, asked: Plain) -> Any:
        self.control.stop(self.folder.path(asked["run"]))
        return {}

    def resume(self, asked: Plain) -> Any:
        self.control.resume(asked["run"], self.folder.path(asked["run"]))
        return {}


def need_ui() -> None:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UserError(f"The page needs {missing[0]}; install it with: pip install 'rebafl[ui]'")


def application(views: Views) -> Starlette:
    """The web application, without the guard before it."""
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in (*SCRIPTS, *STYLES):
            return PlainTextResponse("There is no such file.", 404)
        return Response((STATIC / name).read_bytes(), media_type=TYPES[Path(name).suffix])

    def cells(request: Request) -> Response:
        with views.lock:
            view = views.view(request.query_params["run"])
            first = int(request.query_params.get("since", 0))
            first = first if first <= len(view.cells) else 0
            return Response(view.cells[first:].tobytes(), headers={"x-from": str(first)})

    def linked(request: Request) -> Response:
        file = request.query_params.get("file", "")
        path = views.folder.path(request.query_params.get("run", "")) / file
        if file not in LINKS or not exists(path):
            return PlainTextResponse("There is no such page.", 404)
        return HTMLResponse(path.read_bytes(), headers={"content-security-policy": LINKED_POLICY})

    def paper(_: Request) -> Response:
        path = views.paper_page()
        if path is None:
            return PlainTextResponse("There is no such page.", 404)
        return HTMLResponse(paper_html(path), headers={"content-security-policy": LINKED_POLICY})

    routes = [
        Route("/", lambda request: HTMLResponse(page())),
        Route("/static/{name:path}", static),
        Route("/api/cells", _answering(cells)),
        Route("/page", _answering(linked)),
        Route("/paper", _answering(paper)),
        *(_api(views, question, lock=True) for question in (views.runs, views.run, views.curves, views.prototypes)),
        *(_api(views, question, lock=False) for question in (views.form, views.nodes)),
        *(_api(views, change, lock=True) for change in (views.start, views.stop, views.resume)),
    ]
    return Starlette(routes=routes)


def _api(views: Views, answer: Callable[[Plain], Any], lock: bool) -> Any:
    """Questions are posted as JSON, so that another page cannot send one without being noticed."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    def answered(asked: Plain) -> str:
        if not lock:
            return json.dumps(answer(asked))
        with views.lock:
            return json.dumps(answer(asked))

    async def respond(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                return Response("The request is too long.", 413)
        try:
            asked = json.loads(body or b"{}")
            if not isinstance(asked, dict):
                raise ValueError("no table of values")
            text = await run_in_threadpool(answered, asked)
        except UserError as error:
            return Response(json.dumps({"error": str(error)}), 422, media_type="application/json")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            message = f"This cannot be answered ({type(error).__name__}: {error})."
            return Response(json.dumps({"error": message}), 400, media_type="application/json")
        return Response(text, media_type="application/json")

    return Route(f"/api/{answer.__name__}", respond, methods=["POST"])


def _answering(respond: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """What a user can put right is said in a sentence here, too."""
    from starlette.responses import PlainTextResponse

    def wrapped(request: Request) -> Response:
        try:
            return respond(request)
        except UserError as error:
            return PlainTextResponse(str(error), 422)
        except (KeyError, ValueError) as error:
            return PlainTextResponse(f"This cannot be answered ({error}).", 400)

    return wrapped


def serve(places: Sequence[Path], port: int, own_code: bool, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C; `ready` gets its address, with the token."""
    need_ui()
    import uvicorn

    from .guard import TOKEN, Guard

    listener = _listener(port)
    chosen = listener.getsockname()[1]
    guard: Guard = Guard(application(Views(places, own_code)), chosen)
    config = uvicorn.Config(
        guard, log_level="warning", lifespan="off", server_header=False, ws="none", timeout_graceful_shutdown=1
    )
    ready(f"http://127.0.0.1:{chosen}/?{TOKEN}={guard.token}")
    uvicorn.Server(config).run(sockets=[listener])


def _listener(port: int) -> socket.socket:
    """On this machine's own interface only; port 0 is any that is free."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise UserError(f"Port {port} of 127.0.0.1 cannot be used ({error.strerror}); choose another --port.") from None
    listener.listen(128)
    return listener
