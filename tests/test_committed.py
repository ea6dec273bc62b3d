"""The results in this repository come out again, to the bit, on the machine that runs the tests.

Where bits are of another kind than those of the results (an Intel or ARM processor, no C compiler, another torch), they
must come close, and the test then counts as skipped, with the kind as the reason.
"""

import json

import pytest
import torch
from PIL import Image

from rebafl import simulate
from rebafl.algorithms import KINDS
from rebafl.cli.demo import demo_settings
from rebafl.data import load
from rebafl.paper.results import read_file
from rebafl.paper.verify import read
from rebafl.report.figures import draw_curves
from rebafl.report.summary import Run, group_runs
from rebafl.runs.environment import PORTABLE, machine
from rebafl.runs.verify import repeat
from support.paths import REPOSITORY
from support.toy import TOY_SETTINGS, TinyNet, round_line

QUICK = REPOSITORY / "results" / "quick"
DEMO = [REPOSITORY / "docs" / "measured" / f"demo-{name}.json" for name in ("fedavg", "rebafl")]
ROUNDS = 2


def cheapest(dataset, algorithm):
    """Of the committed cells, that with the fewest clients at work in its first rounds."""
    found = {path: json.loads(path.read_text()) for path in QUICK.glob(f"{dataset}-{algorithm}-seed*.json")}
    return min(found, key=lambda path: (sum(found[path]["curves"]["active"][:ROUNDS]), path.name))


def comes_out_again(path, out):
    kept = read(path)
    verdict = repeat(kept, ROUNDS, out, say=lambda text: None)
    here = machine()
    recorded = kept.environment["torch"]
    if here["bits"] == PORTABLE and here["torch"].split("+")[0] == recorded.split("+")[0]:
        assert verdict.same, f"{verdict.first}, {dict(verdict.largest)}; otherwise here: {dict(verdict.facts)}"
        return
    assert verdict.largest.get("loss", 0.0) < 0.05 * max(kept.curves["loss"][:ROUNDS])
    pytest.skip(f"only close: bits are {here['bits']!r}, torch is {here['torch']}; the results' torch is {recorded}")


NO_CELL = {"fedavg-ft", "fedtrack", "fedavgm", "fedhbm", "fedntd", "fedopt", "fednova", "alone", "centralised"}
"""Algorithms without a committed result on Fashion-MNIST."""


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(set(KINDS) - NO_CELL))
def test_every_algorithm_gives_the_committed_bits(algorithm, tmp_path):
    comes_out_again(cheapest("fashion-mini", algorithm), tmp_path / "again")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a machine that lacks CIFAR-10 fetches it; if it cannot, this fails and says what to do
@pytest.mark.parametrize("algorithm", ["fedavg", "rebafl", "fedavg-ft"])
def test_the_other_network_gives_the_committed_bits(algorithm, tmp_path):
    load("cifar-mini")
    comes_out_again(cheapest("cifar-mini", algorithm), tmp_path / "again")


@pytest.mark.slow
@pytest.mark.parametrize("path", DEMO, ids=lambda path: path.stem)
def test_the_demo_gives_the_committed_bits(path, tmp_path):
    comes_out_again(path, tmp_path / "again")


def drawn_by(path):
    with Image.open(path) as picture:
        return picture.info["Software"]


def test_the_demos_picture_is_that_of_its_curves(tmp_path):
    """Byte for byte, with the matplotlib that drew it."""
    runs = []
    for path in DEMO:
        result = read_file(path)
        runs.append(Run(path, result.settings, [round_line(accuracy=value) for value in result.curves["accuracy"]]))
    draw_curves(group_runs(runs), tmp_path / "curves.png")
    committed = REPOSITORY / "docs" / "demo.png"
    ours, theirs = map(drawn_by, (tmp_path / "curves.png", committed))
    if ours != theirs:
        pytest.skip(f"drawn by {theirs}, and here is {ours}")
    assert (tmp_path / "curves.png").read_bytes() == committed.read_bytes()


def test_the_demo_is_what_the_example_says():
    for path in DEMO:
        name = path.stem.removeprefix("demo-")
        settings = demo_settings(name)
        assert read(path).settings == settings
        assert read(path).rounds == settings.rounds


def test_torch_computes_in_one_thread_wherever_a_number_comes_from(tmp_path, toy):
    """Training, scoring, and between them what the server makes of uploads: sums are never shared among threads."""
    seen: dict[str, set[int]] = {"training": set(), "scoring": set(), "server": set()}

    class Noting(TinyNet):
        def features(self, x):
            seen["training" if self.training else "scoring"].add(torch.get_num_threads())
            return super().features(x)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        simulate(
            TOY_SETTINGS, tmp_path / "run", data=toy, model=Noting, say=lambda text: None,
            listen=lambda event: seen["server"].add(torch.get_num_threads()),
        )  # fmt: skip
        assert torch.get_num_threads() == 2, "it is the user's again"
    finally:
        torch.set_num_threads(before)
    assert seen == {"training": {1}, "scoring": {1}, "server": {1}}
