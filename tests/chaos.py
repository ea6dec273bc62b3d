"""What is left of a federation whose machines keep dying? Kills and restarts at random, and an account of it.

    python tests/chaos.py DIRECTORY --rounds 18 --seed 1 --report docs/measured/chaos.json

Nodes are killed with SIGKILL and brought back, the server once, and one client sends NaN all the time.
"""

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import rebafl
from rebafl import simulate
from rebafl.federation.app.options import read_run_config
from rebafl.federation.ops.local import LocalFederation, open_or_create
from rebafl.report.summary import read_run
from rebafl.runs.events import RoundLine
from rebafl.runs.record import Record

NODES, POISONED = 5, 4
WORDS = "dataset=fashion-mini model=mlp partition=iid partition.clients=5 training.epochs=1 algorithm=rebafl seed=3"
APP = {"serverapp": "rebafl.federation.app.server_app:app", "clientapp": "poisoned_app:app"}
HOLD = 900.0  # seconds after which a federation that does not go on is given up


@dataclass
class Story:
    """What was done, and what came of it."""

    rounds: int
    deaths: list[tuple[float, str, int]] = field(default_factory=list)
    """Seconds since the start, who was killed, and how many rounds were finished then."""
    seconds: float = 0.0
    lines: list[RoundLine] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    """Rounds that were finished once, and are gone or different at the end."""
    undisturbed: float = 0.0

    @property
    def accuracy(self) -> float:
        return self.lines[-1].accuracy

    def returned(self) -> list[int]:
        """Nodes that were killed, missed a round, and had an upload used after that."""
        back = []
        for node in {int(name.removeprefix("node-")) for _, name, _ in self.deaths if name != "server"}:
            took = [node in line.active and node not in line.missing for line in self.lines]
            died = min(done for _, name, done in self.deaths if name == f"node-{node}")
            away = [number for number in range(died, len(took)) if not took[number]]
            back += [node] if away and any(took[away[0] :]) else []
        return sorted(back)


class Monkey:
    """Kills and restarts at random, the same for the same seed, as rounds go by."""

    def __init__(self, federation: LocalFederation, story: Story, seed: int, server_after: int, every: int) -> None:
        self.federation, self.story, self.random = federation, story, np.random.default_rng(seed)
        self.server_after, self.every = server_after, every
        self.began = time.monotonic()
        self.dead: dict[str, float] = {}

    def act(self, done: int) -> None:
        """Once after each finished round: perhaps someone dies."""
        if done == self.server_after:
            self._kill("server", done, away=1.0)
        elif done % self.every == 0 and done <= self.story.rounds * 2 // 3:  # then there is time to come back
            alive = [f"node-{n}" for n in range(NODES) if n != POISONED and f"node-{n}" not in self.dead]
            time.sleep(self.random.uniform(0, 3))  # somewhere in the middle of the next round
            self._kill(str(self.random.choice(alive)), done, away=self.random.uniform(1, 15))

    def revive(self) -> None:
        """Bring back whoever was away for long enough."""
        for name, since in list(self.dead.items()):
            if time.monotonic() > since:
                del self.dead[name]
                self.federation.start(name, environment(name))

    def _kill(self, name: str, done: int, away: float) -> None:
        self.federation.kill(name)
        self.story.deaths.append((round(time.monotonic() - self.began, 1), name, done))
        self.dead[name] = time.monotonic() + away


def environment(name: str) -> dict[str, str]:
    """The sources that this process uses, the poisoned app beside this file, and which node is to be poisoned."""
    folders = [str(Path(rebafl.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))} | (
        {"REBAFL_TEST_POISON": "1"} if name == f"node-{POISONED}" else {}
    )


def chaos(folder: Path, rounds: int, seed: int, server_after: int, every: int, deadline: float, say=print) -> Story:
    """A federation of five that is disturbed all the time, and the same run in the simulator, undisturbed."""
    story = Story(rounds)
    config = {"rounds": rounds, "settings": WORDS, "deadline": deadline, "min-nodes": 2}
    settings, _ = read_run_config(config)
    federation = open_or_create(folder / "fed", NODES)
    monkey, began = Monkey(federation, story, seed, server_after, every), time.monotonic()
    seen: dict[int, RoundLine] = {}
    try:
        federation.begin(config, APP, environment)
        record = Record(federation.out)
        while len(seen) < rounds:
            for line in record.rounds() if record.begun else []:
                if line.round not in seen:
                    seen[line.round] = line
                    say(f"{time.monotonic() - began:5.0f} s  {short(line)}")
                    if line.round < rounds:
                        monkey.act(line.round)
            monkey.revive()
            assert time.monotonic() - began < HOLD, f"only {len(seen)} of {rounds} rounds"
            time.sleep(0.2)
    finally:
        federation.down()
    story.seconds = round(time.monotonic() - began, 1)
    story.lines = record.rounds()
    story.lost = [number for number, line in seen.items() if line not in story.lines]
    whole = simulate(settings, folder / "undisturbed", say=lambda text: None)
    story.undisturbed = whole.rounds()[-1].accuracy
    assert read_run(federation.out).summary()["rounds"] == rounds  # what `rebafl compare` reads
    return story


def short(line: RoundLine) -> str:
    left_out = {**line.missing, **line.refused}
    reasons = "; ".join(f"{client}: {reason}" for client, reason in left_out.items())
    return f"round {line.round}  {line.accuracy:.1f} %  {line.seconds:.0f} s  {reasons}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    chosen = parser.parse_args()
    shutil.rmtree(chosen.folder, ignore_errors=True)
    story = chaos(chosen.folder, chosen.rounds, chosen.seed, chosen.rounds // 2, every=2, deadline=20.0)
    assert not story.lost, f"lost rounds: {story.lost}"
    account = {
        "rounds": story.rounds,
        "seed": chosen.seed,
        "seconds": story.seconds,
        "deaths": story.deaths,
        "returned": story.returned(),
        "lost_rounds": len(story.lost),
        "refused": sum(POISONED in line.refused for line in story.lines),
        "missing_replies": sum(len(line.missing) for line in story.lines),
        "without_update": sum(not line.updated for line in story.lines),
        "slowest_round": max(line.seconds for line in story.lines),
        "accuracy": story.accuracy,
        "undisturbed": story.undisturbed,
    }
    print(json.dumps(account, indent=2))
    if chosen.report:
        chosen.report.write_text(json.dumps(account, indent=2) + os.linesep)
    sys.exit(int(bool(story.lost)))


if __name__ == "__main__":
    main()
