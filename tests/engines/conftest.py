"""An algorithm that harms its worker, by name."""

import pytest

from rebafl.algorithms import KINDS
from support.engines import Sabotage


@pytest.fixture
def sabotage(monkeypatch):
    monkeypatch.setitem(KINDS, "sabotage", Sabotage)
