"""By which number is a claim judged? The paper does not say which its tables print, so by each that they may be.

A claim on a table's numbers is judged by the mean over the second half and by the best round. Its verdict is what both
decide; where they decide differently it *depends*, and while one of them is open the claim is partly run. Other claims
have one measure, and its verdict. FedDyn is scored by the mean of its active clients' models, one of two that its
authors' code records; what its cloud model would decide, which the ReBaFL authors' code scores, is told where it is
something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..base.config import Plain
from .items import Claim, Item
from .results import Result
from .verdicts import CLOSE, FAILED, HELD, NOT_RUN, PARTLY, Lookup, Verdict, judge, judge_race

DEPENDS = "depends"
DECISIONS = (HELD, FAILED, DEPENDS, CLOSE, PARTLY, NOT_RUN)
OPEN = (PARTLY, NOT_RUN)
ON_TABLES = "best"  # the measure of claims on tables, as `items.toml` has it
TABLE_MEASURES = ("second_half", "best")


@dataclass(frozen=True)
class Reading:
    """A claim, and the verdict by each measure that it may be about; `by_cloud`: those that FedDyn's other model
    decides otherwise."""

    claim: Claim
    by_measure: Mapping[str, Verdict]
    by_cloud: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def decision(self) -> str:
        """One of `DECISIONS`."""
        decisions = {verdict.decision for verdict in self.by_measure.values()}
        if len(decisions) == 1:
            return decisions.pop()
        return PARTLY if decisions & set(OPEN) else DEPENDS

    @property
    def with_cloud_model(self) -> Reading:
        """What it would be, were FedDyn scored by its cloud model."""
        return replace(self, by_measure={**self.by_measure, **self.by_cloud}, by_cloud={})

    @property
    def first(self) -> Verdict:
        """By the first measure: of tables the second half, which fits what the paper prints."""
        return next(iter(self.by_measure.values()))


def read_claim(item: Item, claim: Claim, results: Lookup) -> Reading:
    """Judge a claim by each of its measures."""
    measures = TABLE_MEASURES if claim.measure == ON_TABLES else (claim.measure,)
    claims = {measure: replace(claim, measure=measure) for measure in measures}
    verdicts = {measure: judge(item, each, results) for measure, each in claims.items()}
    by_cloud = {measure: judge(item, each, _by_cloud(results)) for measure, each in claims.items()}
    otherwise = {name: other for name, other in by_cloud.items() if other.decision != verdicts[name].decision}
    return Reading(claim, verdicts, otherwise)


def read_race(claim: Claim, race: Plain) -> Reading:
    return Reading(claim, {claim.measure: judge_race(claim, race)})


def _by_cloud(results: Lookup) -> Lookup:
    """The same results, by the cloud model where there is one."""

    def lookup(method: str, condition: str) -> Mapping[int, Result]:
        return {seed: result.of_cloud_model or result for seed, result in results(method, condition).items()}

    return lookup
