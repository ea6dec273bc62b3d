"""`hf:` data: from files here, without a network; columns are found or given; no script is run."""

import socket
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image

from rebafl import UserError, simulate
from rebafl.data import check_name, hub, load
from support.archives import random_bytes
from support.toy import quiet

installed = pytest.mark.skipif(find_spec("datasets") is None, reason="needs Hugging Face's datasets (rebafl[hf])")
pytestmark = pytest.mark.filterwarnings("ignore")  # of datasets itself


@pytest.fixture
def offline(monkeypatch, home):
    """Whoever opens a connection fails."""

    def refuse(*_, **__):
        raise OSError("the network is blocked")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return home


def write_table(path, rows=20, **more):
    datasets = pytest.importorskip("datasets")
    columns = {"a": np.arange(rows) * 0.5, "b": np.arange(rows), "label": np.arange(rows) % 4, **more}
    table = {name: np.asarray(values).tolist() for name, values in columns.items()}
    datasets.Dataset.from_dict(table).to_parquet(str(path))


@installed
@pytest.mark.usefixtures("offline")
def test_a_parquet_file_of_numbers(tmp_path):
    write_table(tmp_path / "d.parquet", hospital=["north", "south"] * 10)
    said: list[str] = []
    data = load(f"hf:{tmp_path / 'd.parquet'}", said.append)
    assert "every fifth" in said[-1]
    assert data.shape == (2,)
    assert data.y_test.tolist() == [0, 1, 2, 3]
    assert data.x_test[:, 1].tolist() == [4, 9, 14, 19]
    assert data.client_train.tolist() == [k % 2 for k in range(20) if k % 5 != 4]


@installed
@pytest.mark.usefixtures("offline")
def test_a_folder_of_parquet_files_and_save_to_disk_are_the_same(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"img": datasets.Image(), "who": datasets.Value("string"), "fine": datasets.ClassLabel(names=["cat", "dog"])}
    )
    pictures = random_bytes(6, 8, 9, 3)
    parts = {
        part: datasets.Dataset.from_dict(
            {"img": [Image.fromarray(x) for x in pictures[rows]], "who": ["u", "v", "u"], "fine": [0, 1, 1]}, features
        )
        for part, rows in (("train", slice(3)), ("test", slice(3, 6)))
    }
    (tmp_path / "p").mkdir()
    for part, held in parts.items():
        held.to_parquet(str(tmp_path / "p" / f"{part}-0.parquet"))
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    files, saved = (load(f"hf:{tmp_path / name}", quiet, column="who") for name in ("p", "saved"))
    assert np.array_equal(files.x_train.numpy(), pictures[:3])
    assert np.array_equal(files.x_test.numpy(), pictures[3:])
    assert files.classes == ("cat", "dog")
    assert files.client_train.tolist() == [0, 1, 0]
    assert files.digest == saved.digest


@installed
@pytest.mark.usefixtures("offline")
def test_an_imagefolder_with_images_of_several_sizes(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "f" / name).mkdir(parents=True)
        for k in range(10):
            Image.fromarray(random_bytes(8 + k, 9, 3)).save(tmp_path / "f" / name / f"{k}.png")
    with pytest.raises(UserError, match="resize=SIDE"):
        load(f"hf:{tmp_path / 'f'}", quiet)
    data = load(f"hf:{tmp_path / 'f'}", quiet, side=8)
    assert data.shape == (3, 8, 8)
    assert data.classes == ("cat", "dog")
    assert len(data.y_train) + len(data.y_test) == 20


@installed
@pytest.mark.usefixtures("offline")
def test_texts_of_users_are_learned_by_a_linear_model(tmp_path):
    datasets = pytest.importorskip("datasets")
    kinds = [k // 3 % 2 for k in range(60)]
    rows = {"text": [["good fine", "bad poor"][kind] for kind in kinds], "user": [k % 3 for k in range(60)],
            "label": [["pos", "neg"][kind] for kind in kinds]}  # fmt: skip
    datasets.Dataset.from_dict(rows).to_parquet(str(tmp_path / "t.parquet"))
    settings = {
        "dataset": f"hf:{tmp_path / 't.parquet'}", "rounds": 2, "partition": "natural", "participation": "always",
        "model": "lr", "workers": 1, "training": {"lr": 1.0},
    }  # fmt: skip
    record = simulate(settings, tmp_path / "r", say=quiet)
    assert record.rounds()[-1].accuracy == 100.0
    assert record.rounds()[-1].active == [0, 1, 2]


@installed
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("?label=nothing", "no column 'nothing'"),
        ("?client=nobody", "no column 'nobody' for clients"),
        ("?test=extra", "no part 'extra'"),
        ("?colour=red", "'colour' is no option"),
        ("?label", "'label' is no option"),
    ],
)
def test_what_is_not_there_is_one_sentence(tmp_path, ending, reason):
    write_table(tmp_path / "d.parquet")
    with pytest.raises(UserError, match=reason):
        load(f"hf:{tmp_path / 'd.parquet'}{ending}", quiet)


@installed
@pytest.mark.usefixtures("offline")
def test_without_a_label_a_file_or_a_network_it_says_so(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"a": [1, 2], "b": [3, 4]}).to_parquet(str(tmp_path / "d.parquet"))
    with pytest.raises(UserError, match=r"surely its label; say which, such as …\?label=NAME: a, b"):
        load(f"hf:{tmp_path / 'd.parquet'}", quiet)
    (tmp_path / "x.txt").write_text("no table")
    with pytest.raises(UserError, match="neither a folder nor a parquet file"):
        load(f"hf:{tmp_path / 'x.txt'}", quiet)


@installed
@pytest.mark.usefixtures("offline")
@installed
@pytest.mark.usefixtures("offline")
def test_texts_of_another_type_are_labels_as_well(tmp_path):
    """As other libraries write them."""
    datasets = pytest.importorskip("datasets")
    table = {"x": [[float(i), 1.0] for i in range(20)], "label": ["a", "b"] * 10}
    kinds = datasets.Features({"x": [datasets.Value("float32")], "label": datasets.Value("large_string")})
    datasets.Dataset.from_dict(table, features=kinds).to_parquet(str(tmp_path / "d.parquet"))
    assert load(f"hf:{tmp_path / 'd.parquet'}", quiet).classes == ("a", "b")


@installed
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("columns", "reason"),
    [({"hospital": ["north", None] * 10}, "whose it is"), ({"image": [b"raw"] * 20}, "holds raw bytes")],
)
def test_data_that_would_be_taken_for_something_else_are_refused(tmp_path, columns, reason):
    write_table(tmp_path / "d.parquet", **columns)
    with pytest.raises(UserError, match=reason):
        load(f"hf:{tmp_path / 'd.parquet'}", quiet)


def test_a_loading_script_is_never_run(tmp_path):
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)\n")
    with pytest.raises(UserError, match="cannot be read"):
        load(f"hf:{folder}", quiet)
    with pytest.raises(UserError, match="neither a folder nor a parquet file"):
        load(f"hf:{folder / 'scripted.py'}", quiet)
    assert not (tmp_path / "ran").exists()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'rebafl\[hf\]'"):
        check_name("hf:ylecun/mnist")
    with pytest.raises(UserError, match="needs a name"):
        check_name("hf:")
