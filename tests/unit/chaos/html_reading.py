"""Reads a page as a browser would: what is open, what it loads, where its links lead."""

from html.parser import HTMLParser

VOID = {"meta"}


class Reading(HTMLParser):
    """Checks that every element is closed, and collects what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name in {"src", "href"}:
                (self.links if str(value).startswith("#") else self.loads).append(str(value))
            assert not name.startswith("on"), f"{tag} has a handler: {name}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(text: str) -> Reading:
    page = Reading()
    page.feed(text)
    page.close()
    return page
