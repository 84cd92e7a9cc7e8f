"""A page of HTML as a tree, for tests of what stands where on it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("meta", "link", "img", "br", "hr", "wbr", "input")


@dataclass
class Element:
    """A tag with its attributes and what is inside."""

    tag: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    def __iter__(self) -> Iterator["Element"]:
        """Iterate over itself and all elements inside it, in their order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child

    def all(self, tag: str, css: str = "") -> list["Element"]:
        """Every element of a tag, perhaps of a CSS class, in their order."""
        return [e for e in self if e.tag == tag and (not css or css in e.attributes.get("class", "").split())]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def rows(self) -> list[list[str]]:
        """The cells of a table, the head first."""
        return [[cell.text for cell in row if cell.tag in ("th", "td")] for row in self.all("tr")]


class Reader(HTMLParser):
    """Builds the tree; every element but the void ones must be closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            last = self.open[-1].children[-1]
            assert isinstance(last, Element)
            self.open.append(last)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_page(text: str) -> Element:
    """Parse a page."""
    reader = Reader()
    reader.feed(text)
    (root,) = reader.open
    return root
