"""A node with data of its own, or with other data than the server's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rebafl.data.arrays import NAMES
from rebafl.federation.app.options import read_run_config
from rebafl.federation.app.server.federate import federate
from rebafl.federation.app.server.members import fingerprint
from rebafl.runs.experiment import split_data
from support.grid import CLIENTS, FakeGrid, Node, nodes_of, run, same_server
from support.toy import lines, make_toy


def test_own_data_give_the_bits_of_the_partition_they_are(tmp_path, config, toy_file):
    """Each node has a file with its samples only, classes numbered in another order but named."""
    expected = run(config)
    settings, _ = read_run_config(config)
    data, split, _ = split_data(settings)
    nodes = sorted((Node(number, config, {}) for number in range(CLIENTS)), key=fingerprint)  # as they are numbered
    for client, node in enumerate(nodes):
        index = split.indices(client)
        part: dict[str, Any] = {"x_train": data.x_train[index].numpy(), "x_test": data.x_test.numpy()}
        labels: dict[str, Any] = {"y_train": 3 - data.y_train[index].numpy(), "y_test": 3 - data.y_test.numpy()}
        path = tmp_path / f"device-{client}.npz"
        np.savez(path, **part, **labels, classes=np.array(["3", "2", "1", "0"]))
        node.context.node_config = {"data": str(path)}
    real = run(config, FakeGrid(nodes), out=str(tmp_path / "own"))
    assert same_server(real, expected)
    assert all(line["refused"] == {} and line["active"] == [0, 1, 2, 3] for line in lines(real.path))


def test_own_data_of_an_unknown_class_or_another_shape_are_refused(tmp_path, config, toy_file):
    x, y = np.zeros((4, 6), np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "class.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=np.array(["0", "shoe"]))
    np.savez(tmp_path / "shape.npz", x_train=x[:, :5], y_train=y, x_test=x[:, :5], y_test=y)
    nodes = nodes_of(config)
    nodes[1] = Node(1, config, {"data": str(tmp_path / "class.npz")})
    nodes[2] = Node(2, config, {"data": str(tmp_path / "shape.npz")})
    nodes[3] = Node(3, config, {})
    refused = lines(run(config, FakeGrid(nodes), rounds=1).path)[0]["refused"]
    assert len(refused) == 3
    assert any("'shoe'" in reason for reason in refused.values())
    assert any("shape (5,)" in reason for reason in refused.values())
    assert any("partition-id=NUMBER" in reason for reason in refused.values())


def test_a_node_with_other_data_under_the_same_name_is_refused(tmp_path, config):
    other = tmp_path / "other.npz"
    np.savez(other, **{name: getattr(make_toy(each=49), name).numpy() for name in NAMES})
    nodes = nodes_of(config)
    grid: Any = FakeGrid(nodes)
    settings, options = read_run_config({**config, "rounds": 1})
    nodes[0].context.run_config = {**config, "dataset": str(other)}
    federate(grid, settings, options)
    refused = lines(Path(config["out"]))[0]["refused"]
    assert refused.keys() == {"0"}
    assert "other data than on the server" in refused["0"]
