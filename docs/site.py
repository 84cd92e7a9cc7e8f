"""Hooks of `mkdocs build`: what the site needs beyond the pages of docs/.

The sources lie in folders at the top of the repository and are imported as geonpg.agents, geonpg.kfac and so on, by the
map in pyproject.toml. mkdocstrings reads files, so the map is laid out as symbolic links in build/api. Pages link to
figures and tables in results/ and to CONTRIBUTING.md and CHANGELOG.md, as they must on GitHub; here these files join
the site, and the links lose their `../`.
"""

import re
import shutil
import tomllib
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
JOINING = (
    "CHANGELOG.md", "CONTRIBUTING.md", "results/*.toml", "results/**/*.md", "results/**/*.png", "results/report.html",
)  # fmt: skip
UPWARDS = re.compile(r"\]\(\.\./(?=results/|CHANGELOG\.md|CONTRIBUTING\.md)")
PARAMETER = re.compile(r"([a-z_]\w*\*?(?:, [a-z_]\w*\*?)*): ")  # a line of a docstring that explains one or several
DOWNWARDS = re.compile(r"\]\(docs/")  # from the pages at the top of the repository


def on_startup(command: str, dirty: bool) -> None:
    """Lay out the packages before mkdocstrings looks for them."""
    lay_out(ROOT / "build" / "api")


def lay_out(where: Path) -> None:
    """Make a folder in which the packages lie as they are imported."""
    mapped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    shutil.rmtree(where, ignore_errors=True)
    for package, folder in mapped.items():
        for module in (ROOT / folder).rglob("*.py"):
            link = where / package.replace(".", "/") / module.relative_to(ROOT / folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(module)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Let the files join that pages link to."""
    for pattern in JOINING:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where those files are in the site."""
    return DOWNWARDS.sub("](", UPWARDS.sub("](", markdown))


class Parameters(griffe.Extension):
    """Shows the lines `name: what it is` of a docstring as a list."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of a module, class or function, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)


def as_list(docstring: str) -> str:
    """Put a dash before each line that explains parameters; the lines that follow it are part of its item."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if PARAMETER.match(line):
            listing = bool(lines) and lines[-1].startswith(("- ", "  "))
            lines += [*([] if listing else [""]), PARAMETER.sub(r"- **`\1`**: ", line, count=1)]
        else:
            inside = bool(lines) and lines[-1].startswith(("- ", "  ")) and line.strip() != ""
            lines.append(f"  {line}" if inside else line)
    return "\n".join(lines)
