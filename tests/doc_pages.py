"""The README and the pages of docs/ as tests see them: blocks of code, commands, links, tables."""

import re
import shlex
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *DOCS]
TOOLS = ("geonpg", "make", "pip", "python", "torchrun")


def name_of(page: Path) -> str:
    """What a test of a page is called."""
    return str(page.relative_to(ROOT))


@cache
def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a language, by default of none: commands, and what they print."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)
    return [text for name, text in fenced if name == language]


@cache
def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def inline(page: Path) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def commands(page: Path) -> list[list[str]]:
    """The commands of a page as arguments: lines of its blocks, and code in its sentences that has arguments."""
    lines = [line for block in blocks(page) for line in block.splitlines()]
    written = [line for line in lines if line.startswith(TOOLS)] + [
        text for text in inline(page) if text.startswith(TOOLS) and " " in text and "…" not in text
    ]
    return [shlex.split(text, comments=True) for text in written if text.split()[0] in TOOLS]


def links(page: Path) -> list[str]:
    """Where a page points to, pictures included, except to the web."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page)) + re.findall(r'src="([^"]+)"', prose(page))
    return [link for link in found if not link.startswith(("http:", "https:"))]


@cache
def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """The text under a heading, up to the next of any level."""
    _, _, rest = page.read_text().partition(f"# {heading}\n")
    assert rest, f"{page.name} has no section {heading!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]


def rows(text: str) -> list[list[str]]:
    """The rows of the first table in a text, without its heading: cells without marks of code or weight."""
    table = re.search(r"(?:^\|.*\n)+", text, re.M)
    assert table is not None
    lines = [line.strip().strip("|").split("|") for line in table[0].splitlines()]
    return [[cell.strip().replace("`", "").replace("**", "") for cell in line] for line in lines[2:]]
