"""A real browser that talks to nobody but this machine: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
REASON = "needs the package playwright" if find_spec("playwright") is None else "needs chromium, as Debian's package"
needs_browser = pytest.mark.skipif(not CHROMIUM or find_spec("playwright") is None, reason=f"a real browser: {REASON}")
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--disable-default-apps", "--no-first-run", "--disable-domain-reliability",
    "--disable-client-side-phishing-detection", "--metrics-recording-only",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=QUIET)
        yield browser
        browser.close()


class Watched:
    """A page, and what went wrong on it: errors on its console, and requests to other machines."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _said(self, message: Any) -> None:
        if message.type == "error" and "status of 422" not in message.text:  # a refusal, which the page shows
            self.errors.append(message.text)

    @property
    def foreign(self) -> list[str]:
        """Requests that would leave the machine."""
        own = ("http://127.0.0.1:", "file://", "data:", "blob:")
        return [url for url in self.requests if not url.startswith(own)]


def until(page: Any, expression: str, seconds: float = 20) -> None:
    """Wait until this is true on the page; Playwright's own way needs what the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"() => Boolean({expression})"):
        if time.monotonic() > end:
            pytest.fail(f"after {seconds} s this is not true on the page: {expression}")
        page.wait_for_timeout(50)


@contextmanager
def served(*places: Path, words: tuple[str, ...] = ()) -> Iterator[str]:
    """`rebafl ui` as a process of its own; its address, with the token."""
    command = [sys.executable, "-m", "rebafl", "ui", *map(str, places), *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(20)
