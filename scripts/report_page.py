"""One page that needs nothing else: style, tables and figures inside, no scripts; light and dark, wide and narrow."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from matplotlib.figure import Figure

from geonpg.scripts.artifacts import Table, shown
from geonpg.scripts.report_figures import Style, encoded
from geonpg.scripts.study import Kind

DASHES = {"-": "none", "--": "6 3", ":": "2 3", "-.": "6 3 2 3"}
CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --soft: #f3f3f1; --rule: #d5d5d0;
  --good: #00664a; --bad: #a63c00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e0; --paper: #16181a; --soft: #212427; --rule: #41464b; --good: #4fd0a5; --bad: #ff9a5c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule); padding-bottom: .3rem; }
p, li { max-width: 46rem; }
.note { font-size: .9rem; opacity: .85; }
.scroll { overflow-x: auto; border: 1px solid var(--rule); border-radius: .4rem; max-width: 100%; width: fit-content; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .3rem .7rem; text-align: left; border-top: 1px solid var(--rule); }
thead th { border-top: 0; background: var(--soft); }
tbody th { font-weight: 600; position: sticky; left: 0; background: var(--paper); }
@media (max-width: 40rem) {
  tbody th { white-space: normal; overflow-wrap: break-word; min-width: 9.5rem; max-width: 9.5rem; } }
.number { text-align: right; }
.better { color: var(--good); font-weight: 600; }
.worse { color: var(--bad); font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: .5rem; }
figure { margin: 0 0 .8rem; max-width: 34rem; }
figure.wide { max-width: none; overflow-x: auto; }
figure.wide svg { min-width: 44rem; }
figure svg { width: 100%; height: auto; display: block; }
figure svg text { fill: currentColor; font-family: inherit !important; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; font-size: .9rem; max-width: none; }
.key svg { vertical-align: middle; margin-right: .4rem; }
"""  # noqa: E501


def page(title: str, body: Sequence[str]) -> str:
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{CSS}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *body,
            "</body></html>\n",
        ]
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def subheading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, name: str = "") -> str:
    return f'<p class="{name}">{escape(text)}</p>' if name else f"<p>{escape(text)}</p>"


def items(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def table_html(table: Table) -> str:
    """In a box of its own that scrolls sideways; the first column stays in sight."""
    rows = [[shown(cell) for cell in row] for row in table.rows]
    numeric = [all(map(is_number, column)) for column in zip(*rows, strict=True)]
    head = "".join(
        f'<th scope="col"{css("number" if n else "")}>{escape(c)}</th>'
        for c, n in zip(table.columns, numeric, strict=True)
    )
    body = "".join(f"<tr>{row_html(row, numeric)}</tr>\n" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n{paragraph(table.note, 'note')}"
    )


def row_html(row: Sequence[str], numeric: Sequence[bool]) -> str:
    first, *rest = row
    cells = [
        f"<td{css('number' if n else cell if cell in ('better', 'worse') else '')}>{escape(cell)}</td>"
        for cell, n in zip(rest, numeric[1:], strict=True)
    ]
    return f'<th scope="row">{escape(first)}</th>' + "".join(cells)


def css(name: str) -> str:
    return f' class="{name}"' if name else ""


def is_number(cell: str) -> bool:
    """Or an interval, or nothing."""
    return re.fullmatch(r"(-?\d[-\d. ±toM k]*|never|-|)", cell) is not None


def figure_html(figure: Figure, label: str, wide: bool = False) -> str:
    """Inline, in the colours of the page: what is black takes the colour of text."""
    text = encoded(figure, "svg", facecolor="none").decode()
    svg = text[text.index("<svg") :].replace("#000000", "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names that every figure would repeat
    return f'<figure{css("wide" if wide else "")} role="img" aria-label="{escape(label)}">{svg}</figure>'


def figures_html(figures: Mapping[str, Figure]) -> str:
    """Side by side where there is room."""
    return '<div class="figures">' + "\n".join(figure_html(f, label) for label, f in figures.items()) + "</div>"


def key_html(labels: Mapping[Kind, str], styles: Mapping[Kind, Style]) -> str:
    """The legend of many figures."""
    return '<ul class="key">' + "".join(f"<li>{swatch(styles[k])}{escape(v)}</li>" for k, v in labels.items()) + "</ul>"


def swatch(style: Style) -> str:
    color = style.color.replace("#000000", "currentColor")
    line = f'<line x2="30" y1="4" y2="4" stroke="{color}" stroke-width="3" stroke-dasharray="{DASHES[style.line]}"/>'
    return f'<svg width="30" height="8" aria-hidden="true">{line}</svg>'
