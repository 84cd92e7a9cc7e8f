"""The HTML of the page."""

from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.reports.page import table_html


def test_names_are_escaped() -> None:
    table = Table("n", "a<b", ("x&y",), [["<script>"]], "1 < 2")
    assert "<script>" not in table_html(table)
    assert "&lt;script&gt;" in table_html(table)


def test_numbers_are_set_as_numbers_and_lists_of_names_as_lists() -> None:
    cells = ("1,234", "-3.9 ± 0.2", "4.5 (3 to 6)"), ("1, 2, 5", "better", "Ant, Hopper, Walker2d")
    rows = [["x", *row] for row in zip(*cells, strict=True)]
    page = table_html(Table("n", "t", ("a", "b", "c"), rows))
    assert page.count('<td class="number">') == 3
    assert "<td>1, 2, 5</td>" in page
    assert '<td class="better">better</td>' in page
    assert '<td class="list">Ant, Hopper, Walker2d</td>' in page
