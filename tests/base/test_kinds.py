"""What a word may name besides the package's own: own code, which is refused in one sentence that says where."""

from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import Field

from rebafl import Participation, UserError, parameters
from rebafl.base.kinds import explained, no_subclass


class Undecorated(Participation):
    name = "undecorated"
    note: ClassVar[str] = "not a parameter"
    every: Annotated[int, Field(ge=1)] = 3

    def present(self, clients, seed, round, purpose):
        return [True] * clients


@parameters
class Decorated(Participation):
    name = "decorated"
    every: Annotated[int, Field(ge=1)] = 3

    def present(self, clients, seed, round, purpose):
        raise ValueError("on purpose")


@parameters
class Plain(Participation):
    name = "plain"


def test_a_class_whose_parameters_would_not_be_seen_is_refused():
    wrong = no_subclass(Participation)
    assert wrong(Undecorated) == "has the parameter every, but no @rebafl.parameters above the class"
    assert wrong(Decorated) == ""
    assert wrong(Plain) == "does not define present()"
    assert "derived from rebafl.Participation" in wrong(int)


def test_an_error_in_own_code_is_named_with_its_line():
    number = 1 + Path(__file__).read_text().splitlines().index('        raise ValueError("on purpose")')
    message = rf"^it failed at .*test_kinds\.py:{number} \(ValueError: on purpose\)\.$"
    with pytest.raises(UserError, match=message), explained("it"):
        Decorated().present(1, 0, 1, "participation")
    with pytest.raises(UserError, match="as it is"), explained("it"):
        raise UserError("as it is")
