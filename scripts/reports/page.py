"""HTML of one self-contained page: style, tables and figures inside, no scripts; light and dark, wide and narrow."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

from geonpg.scripts.common.artifacts import Table, shown
from geonpg.scripts.common.style import encoded
from geonpg.scripts.reports.figures import Style
from geonpg.scripts.reports.recorded_run import Contender

DASHES = {"-": "none", "--": "6 3", ":": "2 3", "-.": "6 3 2 3"}
CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --soft: #f3f3f1; --rule: #d5d5d0;
  --good: #00664a; --bad: #a63c00; --link: #0b57a4; --shade: rgb(0 0 0 / .25); }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e0; --paper: #16181a; --soft: #212427; --rule: #41464b; --good: #4fd0a5; --bad: #ff9a5c;
    --link: #8ec5ff; --shade: rgb(255 255 255 / .3); } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule); padding-bottom: .3rem; }
p, li { max-width: 46rem; }
.note { font-size: .9rem; opacity: .85; }
.summary { border: 1px solid var(--rule); border-radius: .4rem; background: var(--soft); padding: .8rem 1rem;
  list-style: none; margin: 1rem 0; font-size: .95rem; }
.summary li { max-width: none; }
.contents ol { columns: 20rem; padding-left: 1.8rem; margin: .5rem 0; }
details { margin: .6rem 0; }
summary { cursor: pointer; padding: .2rem 0; }
details[open] > summary { margin-bottom: .5rem; }
.scroll { overflow-x: auto; border: 1px solid var(--rule); border-radius: .4rem; max-width: 100%; width: fit-content;
  background: linear-gradient(to left, var(--paper) 30%, transparent) right / 2.4rem 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / .8rem 100% no-repeat scroll; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: left; border-top: 1px solid var(--rule); white-space: nowrap; }
thead th { border-top: 0; white-space: normal; vertical-align: bottom; border-bottom: 2px solid var(--rule); }
tbody th { font-weight: 600; }
th:first-child { position: sticky; left: 0; background: var(--paper); }
td.list { white-space: normal; min-width: 17rem; }
@media (max-width: 40rem) {
  th:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 8.5rem; max-width: 8.5rem; font-size: .8125rem; }
  td.list { min-width: 12rem; } }
.number { text-align: right; }
.better { color: var(--good); font-weight: 600; }
.worse { color: var(--bad); font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: .5rem; }
figure { margin: 0 0 .8rem; max-width: 34rem; }
figure.wide { max-width: none; overflow-x: auto; }
figure.wide svg { min-width: 44rem; }
figure svg { width: 100%; height: auto; display: block; fill: currentColor; }
figure svg text { fill: currentColor; font-family: inherit !important; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; font-size: .9rem; max-width: none; }
.key svg { vertical-align: middle; margin-right: .4rem; }
"""  # noqa: E501


@dataclass(frozen=True)
class Section:
    """A heading of the page, which its contents list, and what stands under it."""

    title: str
    parts: Sequence[str]

    @property
    def anchor(self) -> str:
        """What links to the section name."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def page_html(title: str, summary: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole page: title, summary, contents and sections."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{CSS}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            summary_html(summary),
            contents_html(sections),
            *(section_html(section) for section in sections),
            "</body></html>\n",
        ]
    )


def summary_html(lines: Mapping[str, str]) -> str:
    """A box of lines, each with its title."""
    shown = (f"<li><strong>{escape(name)}:</strong> {escape(text)}</li>" for name, text in lines.items())
    return f'<ul class="summary">{"".join(shown)}</ul>'


def contents_html(sections: Sequence[Section]) -> str:
    """Links to all sections."""
    links = (f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>' for section in sections)
    return f'<nav class="contents" aria-label="Contents"><ol>{"".join(links)}</ol></nav>'


def section_html(section: Section) -> str:
    """A section under its heading."""
    return "\n".join([f'<h2 id="{section.anchor}">{escape(section.title)}</h2>', *section.parts])


def subheading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, name: str = "") -> str:
    """A paragraph of text, perhaps of a CSS class."""
    return f"<p{css(name)}>{escape(text)}</p>"


def items(texts: Sequence[str]) -> str:
    """A list with bullets."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def folded(title: str, part: str) -> str:
    """A part that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{part}</details>"


def table_html(table: Table) -> str:
    """A table in a box of its own that scrolls sideways; its first column stays in sight."""
    rows = [[shown(cell) for cell in row] for row in table.rows]
    numeric = [all(map(is_number, column)) for column in zip(*rows, strict=True)]
    head = "".join(
        f'<th scope="col"{css("number" if n else "")}>{breakable(c)}</th>'
        for c, n in zip(table.columns, numeric, strict=True)
    )
    body = "".join(f"<tr>{row_html(row, numeric)}</tr>\n" for row in rows)
    note = paragraph(table.note, "note") if table.note else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n{note}"
    )


def breakable(name: str) -> str:
    """A name such as InvertedDoublePendulum, which may be broken between its words."""
    return "<wbr>".join(escape(word) for word in re.split(r"(?<=[a-z])(?=[A-Z])", name))


def row_html(row: Sequence[str], numeric: Sequence[bool]) -> str:
    """Cells of a row, the first one as its heading."""
    first, *rest = row
    cells = [f"<td{css(cell_class(cell, n))}>{escape(cell)}</td>" for cell, n in zip(rest, numeric[1:], strict=True)]
    return f'<th scope="row">{breakable(first)}</th>' + "".join(cells)


def cell_class(cell: str, numeric: bool) -> str:
    """CSS class of a cell: numbers, verdicts and long lists have their own."""
    if numeric:
        return "number"
    if cell in ("better", "worse"):
        return cell
    return "list" if cell.count(", ") > 1 and re.search("[A-Za-z%]", cell) else ""


def css(name: str) -> str:
    """The attribute that gives an element a CSS class, if there is one."""
    return f' class="{name}"' if name else ""


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, an interval or nothing."""
    return re.fullmatch(r"(-?\d(?:[-\d. ±()toM k]|,(?=\d))*|never|not known|nan|-|)", cell) is not None


def figure_html(figure: Figure, label: str, wide: bool = False) -> str:
    """A figure as inline SVG in the colours of the page: what is black takes the colour of text."""
    text = encoded(figure, "svg", facecolor="none").decode()
    svg = text[text.index("<svg") :].replace("#000000", "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names that every figure would repeat
    return f'<figure{css("wide" if wide else "")} role="img" aria-label="{escape(label)}">{svg}</figure>'


def figures_html(figures: Mapping[str, Figure]) -> str:
    """Figures side by side where there is room."""
    return '<div class="figures">' + "\n".join(figure_html(f, label) for label, f in figures.items()) + "</div>"


def key_html(labels: Mapping[Contender, str], styles: Mapping[Contender, Style]) -> str:
    """The legend of many figures."""
    shown = (f"<li>{swatch(styles[contender])}{escape(label)}</li>" for contender, label in labels.items())
    return f'<ul class="key">{"".join(shown)}</ul>'


def swatch(style: Style) -> str:
    """A short piece of a contender's line."""
    color = style.color.replace("#000000", "currentColor")
    line = f'<line x2="30" y1="4" y2="4" stroke="{color}" stroke-width="3" stroke-dasharray="{DASHES[style.line]}"/>'
    return f'<svg width="30" height="8" aria-hidden="true">{line}</svg>'
