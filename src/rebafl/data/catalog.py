"""How is a data set found that is known by name, and are these really its bytes? In the cache, a folder, or fetched."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy

from ..base.errors import UserError
from ..base.files import cache_folder
from ..base.kinds import Kinds, no_function
from ..base.words import Say
from . import fetch
from .arrays import NAMES, Arrays, Data, digest, from_arrays
from .sets import ALL, CIFAR_10, MINI_SIZES, Known, Source

__all__ = ["CIFAR_10", "KNOWN", "NOT_HERE", "Known", "Source", "data_folder", "load_known", "whereabouts"]

DIGEST = "sha256"  # in a cache whose right content is known by its archives only

KNOWN: Kinds[Known] = Kinds(
    "dataset",
    {known.name: known for known in ALL},
    no_function("data set"),
    form="module:function, hf:NAME, or the path of an .npz or of a folder of class folders",
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


NOT_HERE = "not here yet"


def whereabouts(known: Known) -> str:
    """Where the data set is now, in words, without fetching or checking anything."""
    if known.embedded:
        return "in the package"
    candidates = [_cache_file(known), *(place.under(data_folder()) for place in known.places)]
    return next((str(path) for path in candidates if path.exists()), NOT_HERE)


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
        arrays = dict(safetensors.numpy.load_file(path))
        if not known.digest:
            with safetensors.safe_open(path, "np") as file:
                if (file.metadata() or {}).get(DIGEST) != digest(arrays):
                    raise ValueError("it is not as it was written")
        return _verified(known, arrays, path)
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
    if known.digest and actual != known.digest:
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
            aside.write(_packed(known, arrays))
        Path(aside.name).replace(target)
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error}); set REBAFL_DATA to a folder with room.") from None


def _packed(known: Known, arrays: Arrays) -> bytes:
    whole = {name: np.ascontiguousarray(arrays[name]) for name in NAMES}
    return safetensors.numpy.save(whole, None if known.digest else {DIGEST: digest(whole)})
