"""Reads a learning curve and draws it, in the terminal or as an SVG picture.

Both pictures show the attempts that a training was made in: each has its own colour, and a
vertical line stands where one was interrupted and the next took over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from dray.drawing import (
    CHARACTER_WIDTH,
    FAINT,
    GRID,
    Axis,
    round_ticks,
    svg_line,
    svg_picture,
    svg_text,
)


@dataclass(frozen=True)
class Point:
    """The value that one attempt reached after an iteration."""

    iteration: int
    value: float
    attempt: int


@dataclass(frozen=True)
class Stretch:
    """What one attempt contributed, from the point where it took over."""

    attempt: int
    points: list[Point]


def read_curve(path: Path) -> list[Point]:
    """Read the rows of a curve, which may be in the middle of being written."""
    rows = path.read_text().splitlines(keepends=True)[1:]
    if rows and not rows[-1].endswith("\n"):
        rows.pop()
    fields = [row.strip().split(",") for row in rows]
    return [Point(int(iteration), float(value), int(n)) for iteration, value, n in fields]


def stretches(points: Sequence[Point]) -> list[Stretch]:
    """Divide the curve by attempt; each begins where the one before ends, so that none floats."""
    result: list[Stretch] = []
    for attempt, group in groupby(points, key=lambda point: point.attempt):
        joint = result[-1].points[-1:] if result else []
        result.append(Stretch(attempt, [*joint, *group]))
    return result


def value_ticks(points: Sequence[Point], most: int) -> list[float]:
    values = [point.value for point in points]
    return round_ticks(min(0, *values), max(values), most)


def iteration_ticks(points: Sequence[Point], most: int) -> list[float]:
    """Choose round iterations. Unlike the values, they end where the data end: the last tick may be
    before that."""
    last = max(point.iteration for point in points)
    return [tick for tick in round_ticks(0, last, most) if tick <= last and tick == int(tick)]


def fitting_labels(parts: Sequence[Stretch], starts: Sequence[float], end: float) -> list[str]:
    """Name each attempt as fully as the room before the next allows; units are characters."""
    labels = []
    for part, (start, following) in zip(parts, pairwise([*starts, end]), strict=True):
        names = [f"attempt {part.attempt}", str(part.attempt), ""]
        labels.append(next(name for name in names if len(name) < following - start or not name))
    return labels


# --- In the terminal ---

# One character holds 2 by 4 dots, and each dot is a bit of its code.
BRAILLE = 0x2800
BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

ATTEMPT_STYLES = ("36", "33", "35", "32", "34", "31")
DIM = "2"

SMALLEST_WIDTH = 32
SMALLEST_HEIGHT = 6
ROWS_BELOW = 3  # the axis, its numbers and the attempts


@dataclass(frozen=True)
class Cell:
    text: str = " "
    style: str = ""


class Grid:
    """Characters on the terminal, each with its style."""

    def __init__(self, width: int, height: int) -> None:
        self.rows = [[Cell()] * width for _ in range(height)]

    def write(self, row: int, column: int, text: str, style: str = "") -> None:
        for offset, character in enumerate(text):
            if 0 <= column + offset < len(self.rows[row]):
                self.rows[row][column + offset] = Cell(character, style)

    def render(self, color: bool) -> str:
        return "\n".join(self._line(row, color) for row in self.rows)

    @staticmethod
    def _line(row: list[Cell], color: bool) -> str:
        used = max((i for i, cell in enumerate(row) if cell.text != " "), default=-1) + 1
        line = ""
        for style, cells in groupby(row[:used], key=lambda cell: cell.style):
            text = "".join(cell.text for cell in cells)
            line += f"\x1b[{style}m{text}\x1b[0m" if style and color else text
        return line


def terminal_plot(
    points: Sequence[Point], width: int, height: int, color: bool, unit: str = "iteration"
) -> str:
    """Draw the curve in at most so many columns and lines, but never in too few to read."""
    if not points:
        return f"no {unit}s yet"
    width, height = max(width, SMALLEST_WIDTH), max(height, SMALLEST_HEIGHT)
    y_ticks = value_ticks(points, most=3)
    left = max(len(f"{tick:g}") for tick in y_ticks) + 2
    # The axes count dots; the last is the one still inside the plot.
    columns, rows = width - left - len(unit) - 1, height - ROWS_BELOW
    last = max(point.iteration for point in points)
    x = Axis(0, max(last, 1), 2 * left, 2 * (left + columns) - 1)
    y = Axis(y_ticks[0], y_ticks[-1], 4 * rows - 1, 0)

    grid = Grid(width, height)
    draw_y_axis(grid, y, y_ticks, rows, left)
    draw_x_axis(grid, x, iteration_ticks(points, most=max(2, columns // 10)), rows, unit)
    draw_attempts(grid, x, stretches(points), rows)
    draw_curve(grid, x, y, stretches(points))
    return grid.render(color)


def draw_y_axis(grid: Grid, y: Axis, ticks: Sequence[float], rows: int, left: int) -> None:
    for row in range(rows):
        grid.write(row, left - 1, "│")
    for tick in ticks:
        grid.write(round(y.place(tick)) // 4, 0, f"{tick:g}".rjust(left - 2) + " ┤")


def draw_x_axis(grid: Grid, x: Axis, ticks: Sequence[float], row: int, unit: str) -> None:
    left, right = int(x.start) // 2, int(x.end) // 2
    grid.write(row, left - 1, "└" + "─" * (right - left + 1) + f" {unit}")
    for tick in ticks:
        column = round(x.place(tick)) // 2
        grid.write(row, column, "┬")
        label = f"{tick:g}"
        grid.write(row + 1, column - (len(label) - 1) // 2, label)


def draw_attempts(grid: Grid, x: Axis, parts: Sequence[Stretch], rows: int) -> None:
    """Draw the lines between the attempts and, in the bottom row, their names."""
    starts = [round(x.place(part.points[0].iteration)) // 2 for part in parts]
    labels = fitting_labels(parts, starts, end=len(grid.rows[0]) + 1)
    for part, start, label in zip(parts, starts, labels, strict=True):
        grid.write(rows + 2, start, label, attempt_style(part.attempt))
    for start in starts[1:]:
        for row in range(rows):
            grid.write(row, start, "┊", DIM)
        grid.write(rows, start, "┴")


def draw_curve(grid: Grid, x: Axis, y: Axis, parts: Sequence[Stretch]) -> None:
    bits: dict[tuple[int, int], int] = {}
    for part in parts:
        places = [(x.place(p.iteration), y.place(p.value)) for p in part.points]
        for column, row in dots_along(places):
            cell = row // 4, column // 2
            bits[cell] = bits.get(cell, 0) | BRAILLE_BITS[row % 4][column % 2]
            grid.write(*cell, chr(BRAILLE + bits[cell]), attempt_style(part.attempt))


def dots_along(places: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return the dots on the straight lines from each place to the next."""
    dots = [(round(column), round(row)) for column, row in places]
    result = dots[:1]
    for (column, row), (next_column, next_row) in pairwise(dots):
        across, down = next_column - column, next_row - row
        count = max(abs(across), abs(down), 1)
        result += [
            (column + round(across * i / count), row + round(down * i / count))
            for i in range(1, count + 1)
        ]
    return result


def attempt_style(attempt: int) -> str:
    return ATTEMPT_STYLES[(attempt - 1) % len(ATTEMPT_STYLES)]


# --- As a picture ---

# The palette of Okabe and Ito, which people with any kind of colour vision can tell apart.
ATTEMPT_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
WIDTH, HEIGHT = 900, 480
LEFT, RIGHT, TOP, BOTTOM = 72, 868, 84, 416


def svg_plot(points: Sequence[Point], title: str) -> str:
    """Draw the curve as a picture of its own, without need of a style sheet or a font."""
    # A curve without points has axes still.
    shown = points or [Point(1, 1.0, 1)]
    y_ticks = value_ticks(shown, most=6)
    x = Axis(0, max(1, *(point.iteration for point in shown)), LEFT, RIGHT)
    y = Axis(y_ticks[0], y_ticks[-1], BOTTOM, TOP)
    parts = stretches(points)
    elements = [
        svg_text(LEFT, 36, title, size=19, weight="600"),
        *svg_y_axis(y, y_ticks),
        *svg_x_axis(x, iteration_ticks(shown, most=8)),
        *svg_attempts(x, parts),
        *svg_curve(x, y, parts),
    ]
    return svg_picture(WIDTH, HEIGHT, elements)


def svg_y_axis(y: Axis, ticks: Sequence[float]) -> list[str]:
    elements = [svg_text(24, (TOP + BOTTOM) / 2, "mean return", size=14, anchor="middle", turn=-90)]
    for tick in ticks:
        place = y.place(tick)
        elements.append(svg_line(LEFT, place, RIGHT, place, GRID))
        elements.append(svg_text(LEFT - 10, place + 4, f"{tick:g}", anchor="end"))
    return elements


def svg_x_axis(x: Axis, ticks: Sequence[float]) -> list[str]:
    elements = [svg_text((LEFT + RIGHT) / 2, HEIGHT - 16, "iteration", size=14, anchor="middle")]
    for tick in ticks:
        place = x.place(tick)
        elements.append(svg_line(place, TOP, place, BOTTOM, GRID))
        elements.append(svg_text(place, BOTTOM + 20, f"{tick:g}", anchor="middle"))
    elements.append(svg_line(LEFT, BOTTOM, RIGHT, BOTTOM, FAINT))
    return elements


def svg_attempts(x: Axis, parts: Sequence[Stretch]) -> list[str]:
    """Draw the lines between the attempts and, above the plot, their names."""
    starts = [x.place(part.points[0].iteration) for part in parts]
    in_characters = [start / CHARACTER_WIDTH for start in starts]
    labels = fitting_labels(parts, in_characters, end=WIDTH / CHARACTER_WIDTH)
    elements = [svg_line(start, TOP - 20, start, BOTTOM, FAINT, "4 4") for start in starts[1:]]
    for part, start, label in zip(parts, starts, labels, strict=True):
        elements.append(svg_text(start + 5, TOP - 12, label, color=attempt_color(part.attempt)))
    return elements


def svg_curve(x: Axis, y: Axis, parts: Sequence[Stretch]) -> list[str]:
    elements = []
    for part in parts:
        places = " ".join(f"{x.place(p.iteration):.1f},{y.place(p.value):.1f}" for p in part.points)
        elements.append(
            f'<polyline points="{places}" fill="none" stroke="{attempt_color(part.attempt)}" '
            'stroke-width="2.5" stroke-linejoin="round" stroke-linecap="round"/>'
        )
    for part in parts[1:]:
        joint = part.points[0]
        elements.append(
            f'<circle cx="{x.place(joint.iteration):.1f}" cy="{y.place(joint.value):.1f}" r="4" '
            f'fill="white" stroke="{attempt_color(part.attempt)}" stroke-width="2"/>'
        )
    return elements


def attempt_color(attempt: int) -> str:
    return ATTEMPT_COLORS[(attempt - 1) % len(ATTEMPT_COLORS)]
