"""FedAvg with the balanced softmax."""

from support.toy import run_toy, same_bits, weights


def test_with_uniform_counts_bsm_is_fedavg(tmp_path, toy):
    """Every client holds equally many samples of each class: the prior adds exact zeros."""
    every = {"kind": "pathological", "clients": 6, "classes": 4, "samples": 20}
    found = [
        weights(run_toy(tmp_path / name, toy, partition=every, algorithm=name)) for name in ("bsm-fedavg", "fedavg")
    ]
    assert same_bits(*found)
