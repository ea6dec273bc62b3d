"""What did version 0.1 compute? Small runs of every kind, and the digests of what they leave on the disk.

`bits.json`, `labels.json`, `run-0.1/` and `exported-0.1/` beside this file were made by the code of version 0.1 and are
never made again: `PYTHONPATH=tests python -m golden.make` adds what is missing and leaves what is there.

Digests are taken from the files of a run directory, not from objects in memory, so that they say nothing about how the
code is organised: of the JSON text of `rounds.jsonl` and of the tensors in the checkpoint's safetensors files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
from PIL import Image
from typer.testing import CliRunner

from rebafl import Settings, simulate
from rebafl.cli import app
from rebafl.data.arrays import NAMES
from rebafl.runs.environment import PORTABLE, machine
from rebafl.runs.settings import stored_settings as read_stored
from support.grid import CLIENTS, CONFIG, FakeGrid, as_in_a_task, nodes_of, run
from support.toy import TOY_SETTINGS, TinyNet, make_toy

GOLDEN = Path(__file__).parent
RESULTS = GOLDEN.parent.parent / "results"
BITS, LABELS, OLD_RUNS, EXPORTED = (GOLDEN / n for n in ("bits.json", "labels.json", "run-0.1", "exported-0.1"))
EXPECTED = OLD_RUNS / "expected.json"

Digests = dict[str, Any]


# --- what a run left, as digests


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tensors_digest(path: Path) -> str:
    """Of the names, types, shapes and bytes in a safetensors file, whatever order it holds them in."""
    total = hashlib.sha256()
    for name, tensor in sorted(safetensors.torch.load(path.read_bytes()).items()):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


CAME_LATER = ("late", "unreached", "disconnected")
"""Keys of a round's line that version 0.1 did not write."""


def round_lines(run_directory: Path) -> list[dict[str, Any]]:
    """`rounds.jsonl` as version 0.1 wrote it, without timings; of clients that failed, who but not the words why."""
    lines = [json.loads(text) for text in (run_directory / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        for key in ("seconds", *CAME_LATER):
            line.pop(key, None)
        line.update({key: sorted(line[key]) for key in ("refused", "missing") if key in line})
    return lines


def digests(run_directory: Path, client_folders: Path | None = None) -> Digests:
    """What a run computed; `client_folders` is where the nodes of a federation keep their clients' states."""
    lines = round_lines(run_directory)
    checkpoint = run_directory / "checkpoint"
    newest = json.loads((checkpoint / "manifest.json").read_text())["round"]
    states = {}
    for path in checkpoint.glob("client-*.safetensors"):
        found = re.match(r"client-(\d+)-(\d+)", path.name)
        states[f"{found[1]} after round {found[2]}"] = tensors_digest(path)
    for path in client_folders.rglob("client-*/round-*.safetensors") if client_folders else ():
        client, round_number = path.parent.name.split("-")[1], path.name.split("-")[1]
        states[f"{client} after round {round_number}"] = tensors_digest(path)
    return {
        "accuracy": [line["accuracy"] for line in lines],
        "loss": [line["loss"] for line in lines],
        "rounds": sha256("\n".join(json.dumps(line, sort_keys=True) for line in lines).encode()),
        "server": tensors_digest(checkpoint / f"server-{newest}.safetensors"),
        "clients": dict(sorted(states.items())),
    }


# --- small runs of every kind


ALGORITHMS = (
    "fedavg", "fedprox", "scaffold", "feddyn", "moon", "fedrs", "fedbabu", "fedlc", "fedavg-ft", "label-smoothing",
    "bsm-fedavg", "rebafl",
)  # fmt: skip
"""Those of version 0.1."""

SMALL_ENOUGH = {"fedavg-ft": {"samples": 3}}
"""Parameters without which an algorithm asks for more data than the toy problem has."""

UNEVEN = {"partition": {"kind": "dirichlet", "clients": 5, "alpha": 0.3, "least": 4}}
"""With as many samples of each class that a client holds, some losses would be the same."""

LOST = {
    "rounds": 5,
    "dropout": "lost",
    "participation": {"kind": "bernoulli", "p": 0.7},
    "delivery": {"kind": "markov", "leave": 0.3, "join": 0.5},
}

RARE = {"kind": "bernoulli", "p": 0.3}

TOY_RUNS: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": {"kind": name, **SMALL_ENOUGH.get(name, {})}} for name in ALGORITHMS},
    **{
        f"{name} uneven": {"algorithm": {"kind": name}, **UNEVEN} for name in ("bsm-fedavg", "fedlc", "fedrs", "rebafl")
    },
    **{f"{name} lost": {"algorithm": {"kind": name}, **LOST} for name in ("fedavg", "rebafl", "scaffold", "feddyn")},
    "rebafl rare": {"algorithm": {"kind": "rebafl"}, "participation": RARE},
    "rebafl memory": {"algorithm": {"kind": "rebafl", "memory": True}, "participation": RARE},
    "rebafl gaussian": {"algorithm": {"kind": "rebafl", "noise": "gaussian"}},
    "rebafl missing": {"algorithm": {"kind": "rebafl", "targets": "missing"}},
    "rebafl groups": {"algorithm": {"kind": "rebafl", "eps": [0.01, 1.0], "lam": 0.5}},
    "rebafl relaxed only": {"algorithm": {"kind": "rebafl", "mu": 0.0}},
    "scaffold raw": {"algorithm": {"kind": "scaffold", "gradient": "raw"}},
    "scaffold active": {"algorithm": {"kind": "scaffold", "scale": "active"}},
    "scaffold clip": {"algorithm": {"kind": "scaffold", "clip": 0.5}},
    "clustered": {"partition": {"kind": "clustered", "clients": 6, "classes": [1, 2, 4], "samples": 12}},
    "even": {"partition": {"kind": "even", "clients": 6, "classes": 2}},
    "iid": {"partition": {"kind": "iid", "clients": 5}},
    "file": {"partition": {"kind": "file", "clients": 3, "path": str(GOLDEN / "partition.json")}},
    "trace": {"participation": {"kind": "trace", "path": str(GOLDEN / "trace.csv")}},
    "always": {"participation": {"kind": "always"}},
    "bernoulli groups": {"participation": {"kind": "bernoulli", "p": [0.2, 0.9]}},
    "persistent": {"participation": {"kind": "persistent", "p": 0.5, "period": 2}, "rounds": 4},
    "fraction": {"participation": {"kind": "fraction", "share": 0.3}},
    "markov": {"participation": {"kind": "markov"}},
    "seed 5": {"seed": 5},
    "plain sgd": {"training": {"epochs": 1, "batch": 7, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}},
}

CNN_SETTINGS: dict[str, Any] = {
    "dataset": "fashion-mini",
    "rounds": 2,
    "workers": 1,
    "partition": {"kind": "pathological", "clients": 6, "classes": 2, "samples": 60},
    "training": {"epochs": 1},
}

CNN_RUNS: dict[str, dict[str, Any]] = {
    **{f"cnn {name}": {"algorithm": {"kind": name}} for name in ("fedavg", "rebafl", "scaffold", "moon")},
    "cnn cifar crop-flip": {"model": {"kind": "cifar-cnn"}, "training": {"epochs": 1, "transform": "crop-flip"}},
}

FEDERATIONS = ("rebafl", "scaffold", "feddyn")


def simulated(name: str, out: Path, **changes: Any) -> Path:
    """One of the small simulations, with changes that must not change a bit."""
    if name in CNN_RUNS:
        simulate({**CNN_SETTINGS, **CNN_RUNS[name], **changes}, out, say=lambda text: None)
    else:
        settings = {**TOY_SETTINGS, **TOY_RUNS[name], **changes}
        simulate(settings, out, data=make_toy(), model=TinyNet, say=lambda text: None)
    return out


def federated(algorithm: str, folder: Path) -> Digests:
    """Nodes in this process; some are away by the roster, and in round 3 the reply of client 3 gets lost."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "toy.npz", **{name: getattr(make_toy(), name).numpy() for name in NAMES})
    config = {
        **CONFIG,
        "dataset": str(folder / "toy.npz"),
        "out": str(folder / "run"),
        "algorithm": algorithm,
        "participation": "bernoulli",
        "settings": f"{CONFIG['settings']} participation.p=0.8",
        "deadline": 1.0,
        "rounds": 4,
    }
    grid = FakeGrid(
        nodes_of(config, folder / "kept"), lambda part, number, reply: None if (part, number) == (3, 3) else reply
    )
    assert len(grid.nodes) == CLIENTS
    return digests(run(config, grid).path, folder / "kept")


def names() -> list[str]:
    return [*TOY_RUNS, *CNN_RUNS, *(f"federation {algorithm}" for algorithm in FEDERATIONS)]


def computed(name: str, folder: Path) -> Digests:
    """What the code under test computes; a federation needs what `as_in_a_task` sets."""
    if name.startswith("federation "):
        return federated(name.removeprefix("federation "), folder)
    return digests(simulated(name, folder / "run"))


# --- comparing


def other_bits(recorded_torch: str) -> str:
    """Why last bits may differ here from those that were recorded; empty if they may not."""
    here = machine()
    if here["bits"] == PORTABLE and here["torch"].split("+")[0] == recorded_torch.split("+")[0]:
        return ""
    return f"bits are {here['bits']!r}, torch is {here['torch']}; those recorded are of torch {recorded_torch}"


def check(found: Digests, recorded: Mapping[str, Any], torch_version: str) -> None:
    """The same to the bit; where that cannot be, close, and the test counts as skipped."""
    if reason := other_bits(torch_version):
        assert found["loss"] == pytest.approx(recorded["loss"], rel=0.05)
        assert found["clients"].keys() == recorded["clients"].keys()
        pytest.skip(f"only close: {reason}")
    unlike = [part for part in recorded if found[part] != recorded[part]]
    assert not unlike, f"not the same bits: {', '.join(unlike)}; accuracy {found['accuracy']}, {recorded['accuracy']}"


# --- labels of the committed results


def stored_settings(path: Path) -> Settings:
    """The settings in a result file."""
    return read_stored(json.loads(path.read_text())["settings"])


def result_files() -> dict[str, Path]:
    return {f"{path.parent.name}/{path.name}": path for path in sorted(RESULTS.glob("*/*.json"))}


def label_and_digest(path: Path) -> dict[str, str]:
    settings = stored_settings(path)
    return {"label": settings.label, "digest": settings.digest}


# --- an old run directory, through the command line


TINY, IMAGE = "tiny.npz", "image.png"
OLD_NAMES = ("scaffold", "rebafl")
OLD_WORDS = (
    f"dataset={TINY}", "model=mlp", "rounds=2", "workers=1", "seed=0", "partition.clients=3", "partition.classes=2",
    "partition.samples=40", "training.epochs=2", "training.batch=16", "participation.p=0.7",
)  # fmt: skip


def command(*words: object) -> str:
    """What a command prints."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def write_tiny(folder: Path) -> None:
    """Grey images of 8 x 8 pixels, four classes: a bright quarter each, with noise; and one image more."""
    random = np.random.default_rng(11)

    def images(labels: np.ndarray) -> np.ndarray:
        pixels = random.integers(0, 120, size=(len(labels), 8, 8, 1))
        for row, label in enumerate(labels):
            top, left = 4 * (label // 2), 4 * (label % 2)
            pixels[row, top : top + 4, left : left + 4] += random.integers(0, 120)
        return pixels.astype(np.uint8)

    train, test = np.repeat(np.arange(4), 40), np.repeat(np.arange(4), 15)
    arrays = {"x_train": images(train), "y_train": train, "x_test": images(test), "y_test": test}
    names = np.array(["upper left", "upper right", "lower left", "lower right"])
    np.savez_compressed(folder / TINY, allow_pickle=False, **arrays, classes=names)
    Image.fromarray(images(np.array([2]))[0, :, :, 0]).save(folder / IMAGE)


def compared() -> list[dict[str, Any]]:
    """What `rebafl compare` says of the old runs in the working directory."""
    return json.loads(command("compare", *OLD_NAMES, "--json"))


def probabilities(model: object) -> dict[str, float]:
    """Of a run or an exported folder, for the one image in the working directory."""
    return json.loads(command("predict", model, IMAGE, "--json"))[0]["probabilities"]


def resumed(accept_changes: bool = False) -> dict[str, Digests]:
    """The old runs in the working directory, taken from two rounds to four."""
    for name in OLD_NAMES:
        command("run", f"out={name}", "rounds=4", "-q", *(["--accept-changes"] if accept_changes else []))
    return {name: digests(Path(name)) for name in OLD_NAMES}


def file_digests(*folders: Path) -> dict[str, str]:
    """Of every file that was committed: none of them may be rewritten."""
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file() and path != EXPECTED]
    return {str(path.relative_to(GOLDEN)): sha256(path.read_bytes()) for path in files if path.suffix != ".pyc"}


# --- recording


def write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n")


def record_bits() -> None:
    kept = json.loads(BITS.read_text()) if BITS.exists() else {"torch": machine()["torch"], "runs": {}}
    if reason := other_bits(kept["torch"]):
        raise SystemExit(f"Nothing can be recorded here: {reason}.")
    for name in names():
        if name not in kept["runs"]:
            with tempfile.TemporaryDirectory() as folder:
                kept["runs"][name] = computed(name, Path(folder))
    write_json(BITS, kept)


def record_labels() -> None:
    kept = json.loads(LABELS.read_text()) if LABELS.exists() else {}
    new = {name: label_and_digest(path) for name, path in result_files().items() if name not in kept}
    write_json(LABELS, {**kept, **new})


def record_old_runs() -> None:
    if OLD_RUNS.exists():
        return
    OLD_RUNS.mkdir()
    write_tiny(OLD_RUNS)
    with inside(OLD_RUNS):
        for name in OLD_NAMES:
            command("run", *OLD_WORDS, f"algorithm={name}", f"out={name}", "-q")
            command("export", name, "--to", EXPORTED / name)
            (Path(name) / ".lock").unlink(missing_ok=True)
        facts = {
            "torch": machine()["torch"],
            "files": file_digests(OLD_RUNS, EXPORTED),
            "compared": compared(),
            "probabilities": {name: probabilities(name) for name in OLD_NAMES},
        }
    with tempfile.TemporaryDirectory() as folder, inside(shutil.copytree(OLD_RUNS, Path(folder) / "runs")):
        facts["resumed"] = resumed()
        facts["compared when resumed"] = compared()
    write_json(EXPECTED, facts)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as monkeypatch:
        as_in_a_task(monkeypatch)
        record_bits()
    record_labels()
    record_old_runs()
