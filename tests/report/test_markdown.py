"""What is generated goes between two marks, and nothing that an author wrote is lost."""

import pytest

from rebafl.report.markdown import END, START, markdown_table, with_generated


def test_only_what_stands_between_the_marks_is_replaced():
    page = f"# Title\n\n{START}\nold\n{END}\n\nformulas\n"
    assert with_generated(page, "new") == f"# Title\n\n{START}\nnew\n{END}\n\nformulas\n"
    assert with_generated(with_generated(page, "new"), "new") == with_generated(page, "new")


@pytest.mark.parametrize("page", ["formulas", f"{START}\nformulas", f"{END} formulas {START}", f"{START}{END}{END}"])
def test_a_page_with_a_mistyped_mark_is_refused_instead_of_cut(page):
    with pytest.raises(ValueError, match=r"must hold .* once"):
        with_generated(page, "new")


def test_cells_may_hold_what_separates_them():
    assert markdown_table(("a", "b"), [("|w|", "2")]) == "| a | b |\n| --- | --- |\n| \\|w\\| | 2 |"
