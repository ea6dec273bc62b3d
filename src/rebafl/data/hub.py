"""How do data of Hugging Face's `datasets` come in? By a name on the hub, or from files here, without any network.

`hf:NAME_OR_PATH?label=COLUMN&input=COLUMN&client=COLUMN&train=SPLIT&test=SPLIT&config=NAME`; what stands after the
question mark is found if it is not given. No loading script is run: `datasets` from version 4 on knows none. Images are
decoded here, by readers of pixels only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt

from ..base.errors import UserError, exists
from ..base.words import one_line
from .arrays import Arrays, Data, from_arrays
from .catalog import data_folder
from .images import read_image
from .published import every_fifth

HUB = "hf:"
OPTIONS = ("label", "input", "client", "train", "test", "config")
LABELS = ("label", "labels", "fine_label", "class", "target", "y")
INPUTS = ("image", "img", "images", "text", "sentence", "content", "features", "x")
CLIENTS = ("client", "client_id", "writer", "writer_id", "user", "user_id", "hospital", "site", "speaker_id", "device")
TESTS = ("test", "validation", "valid", "val", "dev")
NEEDS = "hf: data need Hugging Face's datasets; install it with: pip install 'rebafl[hf]'."


TEXTS, RAW = ("string", "large_string"), ("binary", "large_binary")  # as Arrow calls them


def check_hub(dataset: str) -> tuple[str, dict[str, str]]:
    """The name or path in `hf:…`, and its options; refused if it cannot be read."""
    place, _, query = dataset.removeprefix(HUB).partition("?")
    try:
        options = dict(parse_qsl(query, strict_parsing=True)) if query else {}
    except ValueError:
        options = {query: ""}
    if unknown := [name for name, value in options.items() if name not in OPTIONS or not value]:
        raise UserError(f"dataset: {dataset}: {unknown[0]!r} is no option of hf: data; there are {', '.join(OPTIONS)}.")
    if not place:
        raise UserError("dataset: hf: needs a name on the hub or a path, such as hf:ylecun/mnist.")
    if find_spec("datasets") is None:
        raise UserError(f"dataset: {NEEDS}")
    return place, options


def load_hub(dataset: str, say: Callable[[str], None], side: int, column: str) -> Data:
    """The data; images of `side` pixels a side if that is not 0, and `column` says whose a sample is."""
    place, options = check_hub(dataset)
    where = f"dataset: {dataset}"
    parts = _opened(place, options.get("config"), where, say)
    train = _part(parts, options.get("train", "train"), where)
    found = next((name for name in TESTS if name in parts), "")
    test = _part(parts, options.get("test") or found, where) if options.get("test") or found else None
    label = _column(train, options.get("label", ""), _label_columns(train), "label", where)
    client = column or options.get("client", "") or next((name for name in CLIENTS if name in train.features), "")
    if client and client not in train.features:
        raise UserError(f"{where} has no column {client!r} for clients; there are {', '.join(train.features)}.")
    names = _class_names(train, label)
    read = [
        (_inputs(part, options.get("input", ""), {label, client}, side, where), _labels(part, label, names, where))
        for part in (train, test)
        if part is not None
    ]
    owners = _owners(train[client][:], client, where) if client else None
    if test is None:
        say(f"{where} has no part for the test: every fifth sample is.")
        arrays: Arrays = every_fifth(*read[0])
        owners = owners if owners is None else owners[np.arange(len(owners)) % 5 != 4]
    else:
        arrays = dict(zip(("x_train", "y_train", "x_test", "y_test"), (*read[0], *read[1]), strict=True))
    return from_arrays(dataset, arrays, names, clients=owners, layout="channels-last")


def _opened(place: str, config: str | None, where: str, say: Callable[[str], None]) -> Mapping[str, Any]:
    """The parts by name. Files here are read without asking the hub for anything."""
    datasets = import_module("datasets")
    path, cache = Path(place), str(data_folder() / "hf")
    try:
        if not exists(path):
            say(f"{where}: fetching it from the hub, unless it was fetched before …")
            logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of each of its attempts
            parts = datasets.load_dataset(place, config, cache_dir=cache)
        elif (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            parts = datasets.load_from_disk(place)
        elif files := sorted([path] if path.suffix == ".parquet" else path.rglob("*.parquet")):
            parts = datasets.load_dataset("parquet", data_files=_by_part(files), cache_dir=cache)
        elif path.is_dir():
            parts = datasets.load_dataset("imagefolder", data_dir=place, cache_dir=cache)
        else:
            raise ValueError("it is neither a folder nor a parquet file")
    except Exception as error:  # files and the hub fail in many ways
        hint = "" if exists(path) else "; check its name, the network, or give the path of a file or folder"
        raise UserError(f"{where} cannot be read ({one_line(error)}){hint}.") from None
    return parts if isinstance(parts, Mapping) else {"train": parts}


def _by_part(files: Sequence[Path]) -> dict[str, list[str]]:
    """Which part each file is of: that which its name begins with, or its folder is called; else for training."""
    parts: dict[str, list[str]] = {}
    for file in files:
        names = [name for name in TESTS if file.stem.startswith(name) or file.parent.name == name]
        parts.setdefault(names[0] if names else "train", []).append(str(file))
    return parts


def _part(parts: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in parts:
        raise UserError(f"{where} has no part {name!r}; there are {', '.join(parts)}.")
    return parts[name]


def _column(part: Any, given: str, found: Sequence[str], what: str, where: str) -> str:
    if given and given in part.features:
        return given
    if given or not found:
        hint = f"no column {given!r}" if given else f"no column that is surely its {what}"
        raise UserError(f"{where} has {hint}; say which, such as …?{what}=NAME: {', '.join(part.features)}.")
    return found[0]


def _label_columns(part: Any) -> list[str]:
    classes = [name for name, feature in part.features.items() if type(feature).__name__ == "ClassLabel"]
    return classes or [name for name in LABELS if name in part.features]


def _class_names(part: Any, label: str) -> tuple[str, ...] | None:
    feature = part.features[label]
    if type(feature).__name__ == "ClassLabel":
        return tuple(map(str, feature.names))
    return tuple(sorted(set(map(str, part[label])))) if getattr(feature, "dtype", "") in TEXTS else None


def _labels(part: Any, label: str, names: Sequence[str] | None, where: str) -> npt.NDArray[np.generic]:
    values = part[label][:]
    if not values or not isinstance(values[0], str):
        return np.asarray(values)
    numbers = {name: number for number, name in enumerate(names or ())}
    if unknown := sorted(set(values) - set(numbers)):
        raise UserError(f"{where}: the class {unknown[0]!r} is in the test part only.")
    return np.array([numbers[value] for value in values])


def _inputs(part: Any, given: str, others: set[str], side: int, where: str) -> npt.NDArray[np.generic]:
    """Images, texts or numbers: of one column, or of all columns of numbers together."""
    features = part.features
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    numeric = [name for name in features if name not in others and _is_number(features[name])]
    found = images or [name for name in INPUTS if name in features and name not in others]
    if not given and not found and numeric:
        return np.stack([np.asarray(part[name][:], dtype=np.float32) for name in numeric], axis=1)
    name = _column(part, given, found, "input", where)
    if name in images:
        return _images(part, name, side, where)
    if getattr(features[name], "dtype", "") in RAW:
        raise UserError(f"{where}: the column {name!r} holds raw bytes; store images, texts or lists of numbers.")
    values = np.asarray(part[name][:])
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _owners(values: Sequence[object], column: str, where: str) -> npt.NDArray[np.generic]:
    """Whose each sample is; somebody's, or all that nobody owns would be one more client."""
    if any(value is None or value != value for value in values):
        raise UserError(f"{where}: the column {column!r} does not say of every sample whose it is.")
    return np.asarray(values).astype(str)


def _is_number(feature: Any) -> bool:
    return str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float"))


def _images(part: Any, name: str, side: int, where: str) -> npt.NDArray[np.generic]:
    stored = part.cast_column(name, import_module("datasets").Image(decode=False))
    images: list[npt.NDArray[np.uint8]] = []
    for number, entry in enumerate(stored[name]):
        images.append(image := read_image(Path(entry["path"] or where), side=side, content=entry["bytes"]))
        if image.shape != images[0].shape:
            raise UserError(
                f"{where}: image {number} has shape {image.shape}, the first {images[0].shape}; make all alike, or set "
                "resize=SIDE (a mixture of grey and colour stays a mixture)."
            )
    if not images:
        raise UserError(f"{where} holds no images.")
    return np.stack(images)
