"""Does any damaged or forged file end in a traceback? Files of every kind that is read, changed at random and read.

python tools/fuzz_files.py [FILES] [SEED]

A reader may read what it is given, or refuse it in one sentence (`UserError`). Anything else is printed with the file
that caused it, which is kept, and the exit code is 1. Files that hold digests are changed in both ways: as by an
accident, which a digest notices, and as by somebody who computes the digests anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rebafl import data as datasets
from rebafl import export_model, load_model, model_of_run, simulate
from rebafl.base.config import read_toml
from rebafl.base.errors import UserError
from rebafl.base.files import sha256
from rebafl.base.rng import generator
from rebafl.base.sealed import SEAL, seal, unseal
from rebafl.data.formats import read_idx
from rebafl.data.images import FORMATS
from rebafl.paper.results import read_file
from rebafl.population.given import File
from rebafl.population.participation import Trace, _trace
from rebafl.report.comparison import comparison_table
from rebafl.report.summary import group_runs, read_run
from rebafl.runs.record import CONFIG, CONFIG_DIGEST, ENVIRONMENT, ROUNDS, Record, read_settings
from rebafl.runs.settings import make_settings

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 1e308, -1e308, 0.5, "", "x", "\x1b[2J", "a:b", "\ud800", [], {},
    [[]], [None], {"": None}, [1e308] * 3, "9" * 5000,
)  # fmt: skip
ODD_BYTES = (
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\0",
    b"\n",
    b'"',
    b"[",
    b"{" * 200,
    b"1e999",
)
SLOW = 5.0  # seconds that reading a small file must not take


@dataclass(frozen=True)
class Sort:
    """A sort of file: where an intact one is, what reads it, and what a forger would do after changing it."""

    name: str
    path: Path
    read: Callable[[], object]
    forge: Callable[[bytes], None] | None = None


def changed(data: bytes, random: np.random.Generator) -> bytes:
    """A copy with a few changes: bits, bytes, cut, taken out, doubled, put in."""
    copy = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 6])):
        at, length = int(random.integers(0, len(copy) + 1)), int(random.integers(1, 40))
        match random.integers(0, 7):
            case 0 if copy:
                copy[at % len(copy)] ^= 1 << int(random.integers(0, 8))
            case 1:
                odd = ODD_BYTES[random.integers(0, len(ODD_BYTES))]
                copy[at : at + len(odd)] = odd
            case 2:
                del copy[at : at + length]
            case 3:
                copy[at:at] = copy[at : at + length]
            case 4:
                copy[at:at] = random.bytes(length)
            case 5:
                copy[at:at] = ODD_BYTES[random.integers(0, len(ODD_BYTES))]
            case _ if random.integers(0, 4) == 0:
                del copy[at:]
    return bytes(copy)


def changed_values(data: bytes, random: np.random.Generator) -> bytes:
    """A copy of a JSON text, or of lines of it, with one or two odd values in it."""
    if len(lines := data.splitlines()) > 1 and all(line[:1] == b"{" for line in lines):
        at = random.integers(0, len(lines))
        lines[at] = b" ".join(changed_values(lines[at], random).splitlines())
        return b"\n".join(lines) + b"\n"
    whole = [json.loads(data)]
    for _ in range(random.integers(1, 3)):
        places: list[tuple[Any, Any]] = list(_places(whole))
        holder, key = places[random.integers(0, len(places))]
        odd = deepcopy(ODD_VALUES[random.integers(0, len(ODD_VALUES))])
        if isinstance(holder, dict) and random.integers(0, 3) == 0:
            if random.integers(0, 2):
                del holder[key]
            else:
                holder[str(odd)] = odd
        else:
            holder[key] = odd
    return json.dumps(whole[0], indent=1).encode()


def _places(value: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def fuzz(files: int, seed: int, folder: Path, tick: Callable[[str], None] = lambda name: None) -> list[str]:
    """What went wrong with so many files, each a kept file and a traceback; `tick` hears of each file."""
    problems = []
    sorts = make_sorts(folder)
    for number in range(files):
        sort = sorts[number % len(sorts)]
        random = generator(seed, "fuzz", round=number)
        if problem := _tried(sort, random, folder / f"kept-{number}"):
            problems.append(f"{sort.name}, file {number}: {problem}")
        tick(sort.name)
    return problems


def _tried(sort: Sort, random: np.random.Generator, kept: Path) -> str:
    """What went wrong with one changed file; it is put back afterwards."""
    intact = {path: path.read_bytes() for path in sort.path.parent.rglob("*") if path.is_file()}
    data, began = intact[sort.path], time.monotonic()
    is_json = sort.path.suffix in (".json", ".jsonl")
    new = changed_values(data, random) if is_json and random.integers(0, 2) else changed(data, random)
    sort.path.write_bytes(new)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if sort.forge and random.integers(0, 3):
                sort.forge(new)
            _trace.cache_clear()
            sort.read()
        return f"took {time.monotonic() - began:.1f} s" if time.monotonic() - began > SLOW else ""
    except UserError as error:
        return f"refused in more than one line: {error}" if "\n" in str(error).strip() else ""
    except Exception:
        kept.write_bytes(sort.path.read_bytes())
        return f"{kept}\n{traceback.format_exc()}"
    finally:
        for path, content in intact.items():
            path.write_bytes(content)


def make_sorts(folder: Path) -> list[Sort]:
    """An intact file of each sort, in a folder of its own."""
    return [*_data(folder), *_settings(folder), *_run(folder)]


def _arrays() -> dict[str, Any]:
    random = generator(0, "fuzz data")
    x, y = random.integers(0, 256, (12, 8, 8), dtype=np.uint8), np.arange(12) % 3
    return {"x_train": x, "y_train": y, "x_test": x[:6], "y_test": y[:6]}


def _data(folder: Path) -> Iterator[Sort]:
    arrays = {**_arrays(), "classes": np.array(["a", "b", "c"])}
    for name, save in (("npz", np.savez), ("compressed npz", np.savez_compressed)):
        path = _new(folder, name, "d.npz")
        save(path, allow_pickle=False, **arrays)
        yield Sort(name, path, partial(datasets.load, str(path)))
    entry = _new(folder, "npy", "x_train.npy")
    np.save(entry, arrays["x_train"])
    yield Sort("npy", entry, lambda: datasets.load(str(_zipped(entry, arrays))))
    for form in FORMATS:
        path = _new(folder, form, "image.png")
        held = BytesIO()
        Image.fromarray(arrays["x_train"][0]).convert("RGB").save(held, format=form)
        path.write_bytes(held.getvalue())
        yield Sort(form, path, partial(datasets.read_image, path))
    place = _new(folder, "idx", "train-images-idx3-ubyte")
    stems = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    for stem, array in zip(stems, _arrays().values(), strict=True):
        sizes = b"".join(side.to_bytes(4, "big") for side in array.shape)
        (place.parent / f"{stem}-ubyte").write_bytes(
            bytes((0, 0, 8, array.ndim)) + sizes + array.astype(np.uint8).tobytes()
        )
    yield Sort("idx", place, lambda: _refusing(lambda: read_idx(place.parent)))


def _zipped(changed_array: Path, arrays: dict[str, Any]) -> Path:
    """An archive whose checksums fit the changed array in it."""
    path = changed_array.with_name("d.npz")
    np.savez(path, allow_pickle=False, **{name: array for name, array in arrays.items() if name != changed_array.stem})
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(changed_array, changed_array.name)
    return path


def _settings(folder: Path) -> Iterator[Sort]:
    trace = _new(folder, "trace", "t.csv")
    trace.write_text("client,first,last\n0,1,4\n1,2,2\n2,3,9\n")
    yield Sort("trace", trace, lambda: Trace(path=str(trace)).present(3, 0, 1, "participation"))
    lists = _new(folder, "partition", "p.json")
    lists.write_text(json.dumps([[0, 1, 2], [3, 4], [5]]))
    yield Sort("partition", lists, lambda: File(path=str(lists), clients=3).split(np.arange(6) % 3, 3, 0))
    words = _new(folder, "settings", "s.toml")
    words.write_text(
        'rounds = 5\nseed = 3\nalgorithm = "fedprox"\n[partition]\nkind = "iid"\nclients = 3\n[training]\nlr = 0.1\n'
    )
    yield Sort("settings", words, lambda: make_settings(read_settings(words)))


def _run(folder: Path) -> Iterator[Sort]:
    """A run directory, an exported model and a result: files with digests."""
    run = folder / "run" / "r"
    choice = {
        "rounds": 3,
        "workers": 1,
        "model": "mlp",
        "partition": {"kind": "iid", "clients": 2},
        "algorithm": "fedavg",
    }
    simulate(choice, run, data=datasets.from_arrays("fuzz", _arrays()), say=lambda text: None)
    shutil.rmtree(folder / "exported", ignore_errors=True)
    exported = folder / "exported" / "e"
    export_model(model_of_run(run), exported)
    manifest = run / "checkpoint" / "manifest.json"

    def read() -> None:
        for part in (Record(run).points, Record(run).saved_server, lambda: model_of_run(run)):
            try:
                part()
            except UserError as error:
                assert str(error)
        comparison_table(group_runs([read_run(run)]))

    def known(**new: object) -> None:
        values = {**unseal(manifest.read_bytes())[0], **new}
        manifest.write_bytes(seal(json.dumps(values)))

    def resealed(path: Path) -> Callable[[bytes], None]:
        def forge(data: bytes) -> None:
            text = re.sub(rf',\s*"{SEAL}": "[0-9a-f]*"'.encode(), b"", data)
            path.write_bytes(seal(text.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()))

        return forge

    def signed(data: bytes) -> None:
        text = CONFIG_DIGEST.sub("", data.decode("utf-8", "replace"))
        (run / CONFIG).write_bytes(f"{text}# sha256 of the lines above: {sha256(text.encode())}\n".encode())

    def described(data: bytes) -> None:
        facts = unseal((exported / "model.json").read_bytes())[0]
        (exported / "model.json").write_bytes(seal(json.dumps({**facts, "weights_sha256": sha256(data)})))

    yield Sort("config.toml", run / CONFIG, read, signed)
    yield Sort("environment.json", run / ENVIRONMENT, read, resealed(run / ENVIRONMENT))
    yield Sort("rounds.jsonl", run / ROUNDS, read, lambda data: known(bytes=len(data), rounds=sha256(data)))
    yield Sort("manifest.json", manifest, read, resealed(manifest))
    weights = run / "checkpoint" / "server-3.safetensors"
    yield Sort("server", weights, read, lambda data: known(server=sha256(data)))
    for name, forge in (("model.json", resealed(exported / "model.json")), ("model.safetensors", described)):
        yield Sort(name, exported / name, lambda: load_model(exported), forge)
    result = next((Path(__file__).parents[1] / "results").rglob("*.json"))
    copy = _new(folder, "result", "r.json")
    shutil.copy(result, copy)
    yield Sort("result", copy, lambda: _refusing(lambda: read_file(copy)), resealed(copy))
    members = _new(folder, "members", "members.toml")
    members.write_text('[clients]\n0 = "ecdsa-sha2-nistp384 AAAA"\n')
    yield Sort("members.toml", members, lambda: read_toml(members))


def _refusing(read: Callable[[], object]) -> object:
    """For readers whose callers make a sentence of these two."""
    try:
        return read()
    except (ValueError, OSError) as error:
        raise UserError(" ".join(str(error).split())) from None


def _new(folder: Path, name: str, file: str) -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    return folder / name / file


def main() -> None:
    from rebafl.cli.terminal import progress_bar

    files, seed = (int(word) for word in (sys.argv[1:] + ["20000", "0"][len(sys.argv) - 1 :]))
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    counted: Counter[str] = Counter()
    with progress_bar(disable=not os.isatty(2)) as progress:
        job = progress.add_task("files", total=files, facts="")

        def tick(name: str) -> None:
            counted[name] += 1
            progress.advance(job)

        problems = fuzz(files, seed, folder, tick)
    print("\n".join(problems[:20]))
    print(f"{sum(counted.values())} files of {len(counted)} sorts, seed {seed}: {len(problems)} problems")
    if not problems:
        shutil.rmtree(folder)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
