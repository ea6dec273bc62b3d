"""Three words, and none of them for free."""

import pytest

from rebafl.privacy.measures import Estimate, estimate
from rebafl.privacy.verdicts import LEAKS, NO_LEAK, TOO_WEAK, decide

STRONG, CHANCE, LEAK = Estimate(0.95, 0.9, 1.0, 10), Estimate(0.5, 0.48, 0.52, 10), Estimate(0.6, 0.58, 0.62, 10)


@pytest.mark.parametrize(
    ("result", "positive", "negative", "others", "easier", "word"),
    [
        (LEAK, STRONG, CHANCE, 1000, None, LEAKS),
        (CHANCE, STRONG, CHANCE, 1000, None, NO_LEAK),
        (CHANCE, CHANCE, CHANCE, 1000, None, TOO_WEAK),  # an attack that never works
        (CHANCE, estimate([]), CHANCE, 1000, None, TOO_WEAK),  # no control at all
        (LEAK, STRONG, LEAK, 1000, None, TOO_WEAK),  # finds something where there is nothing
        (LEAK, STRONG, CHANCE, 999, None, TOO_WEAK),
        (Estimate(0.6, 0.58, 0.62, 4), STRONG, CHANCE, 1000, None, TOO_WEAK),
        (Estimate(0.52, 0.4, 0.64, 10), STRONG, CHANCE, 1000, None, TOO_WEAK),  # cannot see that much
        (CHANCE, STRONG, CHANCE, 1000, LEAK, NO_LEAK),
        (CHANCE, STRONG, CHANCE, 1000, CHANCE, TOO_WEAK),  # blind to means of ten times fewer images, too
        (estimate([]), STRONG, CHANCE, 1000, None, TOO_WEAK),
    ],
)
def test_what_follows_from_a_result_and_its_controls(result, positive, negative, others, easier, word):
    assert decide(result, positive, negative, 0.5, others, easier)[0] == word
