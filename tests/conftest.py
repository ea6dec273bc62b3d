"""Fixtures for tests of every folder."""

import pytest
from hypothesis import settings

from rebafl import Data
from rebafl.paper import items
from support.toy import make_toy

settings.register_profile("patient", deadline=None)  # how long an example takes says something about the machine only
settings.load_profile("patient")


@pytest.fixture
def small(monkeypatch):
    """An item that takes seconds."""
    tiny = "dataset=fashion-mini partition.clients=4 partition.samples=20 training.epochs=1"
    file = {
        "deviations": ["none"],
        "methods": {"FedAvg": "algorithm=fedavg", "ReBaFL": "algorithm=rebafl"},
        "scales": {"paper": {"about": "a", "words": ["rounds=3"]}, "quick": {"about": "b", "words": ["rounds=2"]}},
        "items": {
            "small": {
                "title": "Small", "shows": ["table", "curves", "lines", "diversity"],
                "methods": ["FedAvg", "ReBaFL"], "conditions": {"here": tiny},
                "claims": [{"text": "It works.", "measure": "best", "pairs": [["ReBaFL", "FedAvg"]]}],
            }
        },
    }  # fmt: skip
    monkeypatch.setattr(items, "_file", lambda: file)


@pytest.fixture(scope="session")
def toy() -> Data:
    return make_toy()
