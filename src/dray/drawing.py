"""What pictures are made of: axes, round numbers along them, and the elements of an SVG file.

A picture needs no style sheet and no font of its own. Texts in it may come from anywhere: they are
escaped."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

INK, FAINT, GRID = "#333333", "#888888", "#e6e6e6"
LABEL_SIZE = 12
CHARACTER_WIDTH = 7.0  # of a label, at most
CLOSE = 1e-9  # of values themselves: what lies closer together is one point of an axis
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SMALLEST = 1e-300  # of a span that can be divided
LARGEST = 1e300  # value that is drawn where it is: no float can hold the span of larger ones


@dataclass(frozen=True)
class Axis:
    """Maps the values from low to high onto the positions from start to end."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        share = (drawable(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def drawable(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Choose round values that span low to high in at most so many intervals.

    Of the spacings possible the one that reaches least beyond the data is taken, and of those
    the finest.
    """
    low, high = drawable(low), drawable(high)
    least = max(abs(low) * CLOSE, abs(high) * CLOSE, SMALLEST)
    high = high if high - low > least else low + max(least, 1)
    magnitude = 10 ** math.floor(math.log10((high - low) / most))
    choices: list[tuple[float, float, int, int]] = []
    for step in (magnitude * factor for factor in (1, 2, 2.5, 5, 10, 20)):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first <= most:
            choices.append(((last - first) * step, step, first, last))
    _, step, first, last = min(choices)
    return [step * i for i in range(first, last + 1)]


def svg_picture(width: float, height: float, elements: Iterable[str]) -> str:
    """Put elements together to a picture on white."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>\n'
        + "\n".join(elements)
        + "\n</svg>\n"
    )


def svg_text(
    x: float,
    y: float,
    text: str,
    size: int = LABEL_SIZE,
    color: str = INK,
    anchor: str = "start",
    weight: str = "400",
    turn: int = 0,
) -> str:
    turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" fill="{color}" '
        f'text-anchor="{anchor}"{turned}>{escape(NOT_IN_XML.sub("", text))}</text>'
    )


def svg_line(x1: float, y1: float, x2: float, y2: float, color: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"'
        f' stroke-width="1"{dashed}/>'
    )
