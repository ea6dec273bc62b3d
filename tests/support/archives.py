"""Small stand-ins for the archives that data sets come in."""

import gzip
import json
import struct
from dataclasses import replace

import numpy as np
from PIL import Image

from rebafl.data import catalog, formats
from rebafl.data.arrays import digest

RANDOM = np.random.default_rng(0)


def random_bytes(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def idx_arrays():
    x, u = random_bytes(6, 28, 28, 1), random_bytes(4, 28, 28, 1)
    return {"x_train": x, "y_train": random_bytes(6) % 10, "x_test": u, "y_test": random_bytes(4) % 10}


def write_idx(folder, arrays, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, stem in formats.IDX_FILES.items():
        array = arrays[name].squeeze(-1) if name.startswith("x") else arrays[name]
        data = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        (folder / f"{stem}.gz").write_bytes(gzip.compress(data)) if zipped else (folder / stem).write_bytes(data)


def cifar_arrays():
    labels = (np.arange(10) % 10).astype(np.uint8)
    x, u = random_bytes(10, 32, 32, 3), random_bytes(3, 32, 32, 3)
    return {"x_train": x, "y_train": labels, "x_test": u, "y_test": labels[:3]}


def cifar_batches(arrays):
    """Name, images as three planes, labels: five training batches and one for the test."""
    for k in range(5):
        part = slice(2 * k, 2 * k + 2)
        yield f"data_batch_{k + 1}", arrays["x_train"][part].transpose(0, 3, 1, 2), arrays["y_train"][part]
    yield "test_batch", arrays["x_test"].transpose(0, 3, 1, 2), arrays["y_test"]


def write_binary(folder, arrays):
    folder.mkdir(parents=True)
    for name, x, y in cifar_batches(arrays):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([b]) + a.tobytes() for a, b in zip(x, y, strict=True)))


def short(text):
    """A short string as an opcode."""
    return b"U" + bytes([len(text)]) + text


def write_python(folder, arrays):
    """Pickles as Python 2 wrote them: an opcode stream, assembled by hand."""
    folder.mkdir(parents=True)
    for name, x, y in cifar_batches(arrays):
        stream = b"\x80\x02}(" + short(b"batch_label") + short(b"training batch") + short(b"labels") + b"]("
        stream += b"".join(b"K" + bytes([label]) for label in y) + b"e" + short(b"data")
        stream += b"cnumpy.core.multiarray\n_reconstruct\n" + b"T" + struct.pack("<I", x.size) + x.tobytes()
        stream += short(b"filenames") + b"](" + short(b"a.png") + b"K\x07eu."
        (folder / name).write_bytes(stream)


def write_tfjs(folder, arrays):
    folder.mkdir(parents=True)
    for name, x, y in cifar_batches(arrays):
        Image.fromarray(np.ascontiguousarray(x.transpose(0, 2, 3, 1).reshape(len(y), 1024, 3))).save(
            folder / f"{name}.png"
        )
    for part, name in (("train", "train_lables"), ("test", "test_lables")):
        (folder / f"{name}.json").write_text(json.dumps(arrays[f"y_{part}"].tolist()))


def known(arrays, **changes):
    return replace(catalog.CIFAR_10, digest=digest(arrays), places=(), sources=(), **changes)
