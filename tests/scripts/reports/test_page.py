"""The HTML of the page."""

from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.reports.page import table_html


def test_names_are_escaped() -> None:
    table = Table("n", "a<b", ("x&y",), [["<script>"]], "1 < 2")
    assert "<script>" not in table_html(table)
    assert "&lt;script&gt;" in table_html(table)
