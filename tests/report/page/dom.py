"""A strict reading of a page: elements must close in turn, and what each holds can be asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
NOT_IN_P = {"p", "div", "details", "table", "ul", "dl", "section", "figure", "h1", "h2", "h3", "h4", "h5", "pre"}


@dataclass
class Node:
    tag: str
    attrs: dict[str, str]
    parent: Node | None
    children: list[Node | str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)

    def all(self, tag: str = "", kind: str = "") -> list[Node]:
        found = []
        for child in self.children:
            if isinstance(child, Node):
                if (not tag or child.tag == tag) and (not kind or kind in child.attrs.get("class", "").split()):
                    found.append(child)
                found += child.all(tag, kind)
        return found

    def with_id(self, name: str) -> Node:
        (found,) = [node for node in self.all() if node.attrs.get("id") == name]
        return found

    def rows(self) -> list[list[str]]:
        """Text of the cells of a table's rows."""
        return [
            [" ".join(cell.text().split()) for cell in row.children if isinstance(cell, Node)] for row in self.all("tr")
        ]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.top = self.open = Node("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        node = Node(tag, {name: value or "" for name, value in attrs}, self.open)
        if tag in NOT_IN_P:
            above = self.open
            while above.parent is not None:
                assert above.tag != "p", f"<{tag}> in a <p>"
                above = above.parent
        self.open.children.append(node)
        if tag not in VOID:
            self.open = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.children.append(Node(tag, {name: value or "" for name, value in attrs}, self.open))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.tag == tag, f"</{tag}> closes <{self.open.tag}>"
        assert self.open.parent is not None
        self.open = self.open.parent

    def handle_data(self, data: str) -> None:
        self.open.children.append(data)


def read(page: str) -> Node:
    """The page as a tree.

    Raises
    ------
    AssertionError
        If an element does not close in turn.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open is reader.top, f"<{reader.open.tag}> stays open"
    return reader.top
