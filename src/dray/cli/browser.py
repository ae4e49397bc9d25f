"""Opens pages in the browser of this machine."""

from __future__ import annotations

import html
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<title>Opening …</title>
<a href="{url}">Open it</a>
"""


def has_desktop() -> bool:
    """Return whether there is one. Without, Python would start a browser for the terminal, which is
    in use."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform == "darwin" or any(os.environ.get(one) for one in names)


def open_page(url: str) -> None:
    if has_desktop():
        import webbrowser  # only here

        webbrowser.open(url)


@contextmanager
def private_page(url: str) -> Iterator[str]:
    """Yield the address of a file that leads to a page whose address holds a token. The words of a
    browser's command line can be read by everybody on this machine, the file cannot."""
    with tempfile.TemporaryDirectory(prefix="dray-open-") as folder:
        path = Path(folder, "open.html")
        path.touch(mode=0o600)
        path.write_text(REDIRECT.format(url=html.escape(url)), "utf-8")
        yield path.as_uri()
