"""Draws a sweep: what matters, and where the best lie; as SVG pictures, and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dray.drawing import (
    CHARACTER_WIDTH,
    FAINT,
    INK,
    Axis,
    round_ticks,
    svg_line,
    svg_picture,
    svg_text,
)
from dray.node.sweeps import space as spaces
from dray.node.sweeps.filling import short_name
from dray.records import NamedTuple
from dray.sweep.importance import ENOUGH, FEWEST, Importance, importances, place_of
from dray.sweep.study import LEARNT, Parameter, Study, Trial
from dray.sweep.table import configurations, show_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOO_FEW = f"what matters can be told once {FEWEST} configurations were trained to their end"
BY_CHANCE = "no parameter alone explains more than chance does: more trials may tell"
# From bad to good; people with any kind of colour vision see the order (Matplotlib's viridis).
SCALE = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
BEST_COLOR, BAR_COLOR = "#d55e00", "#0072b2"
MOST_LINES = 1000  # configurations in a picture: the best of them
MOST_TICKS = 12  # labels of a choice
SPARKS = " ▁▂▃▄▅▆▇█"
STRIP = 24  # characters of a terminal for a parameter's range
LONGEST_LABEL = 16


# -- in the terminal ----------------------------------------------------------------------------


def terminal(study: Study, trials: Sequence[Trial], width: int = 80) -> list[str]:
    """Say what matters, and where the best quarter of the configurations lies."""
    found = importances(study, trials)
    if not found:
        return [TOO_FEW]
    names = [cut(short_name(one.parameter.name), LONGEST_LABEL) for one in found]
    wide = max(map(len, [*names, "MATTERS"]))
    lines = [f"{'MATTERS'.ljust(wide)}        WHERE THE BEST {len(found[0].best)} LIE"]
    for name, one in zip(names, found, strict=True):
        share = f"{one.share:4.0%}"
        lines.append(cut(f"{name.ljust(wide)}  {share}  {where(one)}", width))
    lines += [BY_CHANCE] if not any(one.share for one in found) else doubts(found)
    return lines


def doubts(found: Sequence[Importance]) -> list[str]:
    """Say so where too few configurations were trained to their end for more than a guess."""
    few = [one.judged for one in found[:1] if one.judged < ENOUGH]
    return [f"a rough guess, from {few[0]} configurations: more trials tell better"] if few else []


def where(one: Importance) -> str:
    """Show 1e-5 ▕  ▂▆█▃      ▏ 0.1, or the choices by how many of the best have them."""
    parameter = one.parameter
    if parameter.kind == "choice":
        counts = [0] * len(parameter.values)
        for place in one.places:
            counts[min(int(place * len(counts)), len(counts) - 1)] += 1
        order = sorted(range(len(counts)), key=lambda at: -counts[at])
        told = [f"{show_value(parameter.values[at])} ({counts[at]})" for at in order if counts[at]]
        return ", ".join(told)
    low, high = show_value(float(parameter.low)), show_value(float(parameter.high))
    return f"{low} ▕{strip(one.places)}▏ {high}"


def strip(places: Sequence[float]) -> str:
    """Draw how many lie where, from the lowest to the highest."""
    counts = [0] * STRIP
    for place in places:
        counts[min(int(place * STRIP), STRIP - 1)] += 1
    top = max(counts) or 1
    return "".join(SPARKS[math.ceil(one / top * (len(SPARKS) - 1))] for one in counts)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


# -- importance as a picture --------------------------------------------------------------------


def importance_picture(study: Study, trials: Sequence[Trial]) -> str:
    """Draw how much each parameter matters, as bars."""
    found = importances(study, trials)
    names = [cut(short_name(one.parameter.name), 30) for one in found]
    left = 40 + max(map(len, names), default=0) * CHARACTER_WIDTH
    width, height = left + 560, 96 + 34 * max(len(found), 1)
    across = Axis(0.0, max((one.share for one in found), default=1.0) or 1.0, left, left + 460)
    elements = title_of(study, "What matters", 24)
    if not found:
        elements.append(svg_text(24, 96, TOO_FEW, size=14))
    elements += [svg_text(24, 72, one, size=13, color=FAINT) for one in doubts(found)]
    for at, (name, one) in enumerate(zip(names, found, strict=True)):
        y = 84 + 34 * at
        end = across.place(one.share)
        elements.append(svg_text(left - 12, y + 15, name, size=14, anchor="end"))
        elements.append(rectangle(left, y, max(end - left, 1), 20, BAR_COLOR))
        elements.append(svg_text(end + 8, y + 15, f"{one.share:.0%}", size=14))
    return svg_picture(width, height, elements)


def title_of(study: Study, what: str, left: float) -> list[str]:
    return [
        svg_text(left, 32, f"{what} in {study.id}", size=19, weight="600"),
        svg_text(left, 54, study.goal, size=13, color=FAINT),
    ]


def rectangle(x: float, y: float, width: float, height: float, color: str) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{color}"/>'


# -- parallel coordinates -----------------------------------------------------------------------

TOP, BOTTOM, LEFT, APART = 104.0, 440.0, 90.0, 150.0
HEIGHT = 480.0


class Course(NamedTuple):
    """The line of one configuration: its place on each axis (0 at the bottom; None where it does
    not have the parameter), and on the last its value."""

    units: tuple[float | None, ...]
    value: float
    is_full: bool


def parallel_picture(study: Study, trials: Sequence[Trial]) -> str:
    """Draw each configuration as a line through its values, coloured by what it has reached.
    Trainings that were cut short are grey."""
    axes = [one for one in study.space if one.kind in LEARNT]
    drawn = sorted(courses(study, trials, axes), key=lambda one: (one.is_full, -loss(study, one)))
    drawn = drawn[-MOST_LINES:]
    columns = [LEFT + APART * at for at in range(len(axes) + 1)]
    ticks = value_ticks([one.value for one in drawn])
    values = Axis(ticks[0], ticks[-1], BOTTOM, TOP)
    elements = title_of(study, "Configurations", LEFT - 66)
    full = [one for one in drawn if one.is_full]
    elements += [line_of(one, columns, values, color(study, one, full)) for one in drawn]
    for parameter, x in zip(axes, columns, strict=False):
        elements += axis_of(parameter, x)
    elements += value_axis(study, columns[-1], values, ticks)
    elements += legend(drawn, columns[-1])
    return svg_picture(columns[-1] + 110, HEIGHT, elements)


def courses(study: Study, trials: Sequence[Trial], axes: Sequence[Parameter]) -> list[Course]:
    found = []
    for one in configurations(study, trials):
        places = {parameter.name: place_of(parameter, one) for parameter in axes}
        is_whole = all(
            place is not None or (one.values and name not in one.values)
            for name, place in places.items()
        )
        mean = one.mean
        if is_whole and mean is not None and math.isfinite(mean):
            found.append(Course(tuple(places.values()), mean, one.is_full))
    return found


def loss(study: Study, one: Course) -> float:
    return study.loss(one.value)


def color(study: Study, one: Course, full: Sequence[Course]) -> str:
    """Choose by rank among whole trainings, as values may lie far apart; the best stands out."""
    if not one.is_full:
        return "#cccccc"
    worse = sum(1 for other in full if loss(study, other) > loss(study, one))
    if worse == len(full) - 1:
        return BEST_COLOR
    return SCALE[min(worse * len(SCALE) // max(len(full), 1), len(SCALE) - 1)]


def line_of(one: Course, columns: Sequence[float], values: Axis, stroke: str) -> str:
    heights = [None if unit is None else BOTTOM + unit * (TOP - BOTTOM) for unit in one.units]
    heights.append(values.place(one.value))
    places = [(x, y) for x, y in zip(columns, heights, strict=True) if y is not None]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    is_best = stroke == BEST_COLOR
    look = f'stroke-width="{3 if is_best else 1.4}" stroke-opacity="{1 if is_best else 0.75}"'
    return f'<polyline points="{points}" fill="none" stroke="{stroke}" {look}/>'


def axis_of(parameter: Parameter, x: float) -> list[str]:
    elements = [
        svg_line(x, TOP, x, BOTTOM, INK),
        svg_text(x, TOP - 16, cut(short_name(parameter.name), 19), size=13, anchor="middle"),
    ]
    for unit, label in parameter_ticks(parameter):
        y = BOTTOM + unit * (TOP - BOTTOM)
        elements.append(svg_line(x - 4, y, x, y, INK))
        elements.append(halo(x - 8, y + 4, cut(label, LONGEST_LABEL)))
    return elements


def halo(x: float, y: float, label: str) -> str:
    """Write a label that is read on top of lines."""
    drawn = svg_text(x, y, label, size=11, anchor="end")
    edge = 'paint-order="stroke" stroke="white" stroke-width="3" stroke-linejoin="round"'
    return drawn.replace("<text ", f"<text {edge} ", 1)


def parameter_ticks(parameter: Parameter) -> list[tuple[float, str]]:
    """Return where an axis is labelled, and how."""
    if parameter.kind == "choice":
        many = len(parameter.values)
        every = range(0, many, math.ceil(many / MOST_TICKS))
        return [((at + 0.5) / many, show_value(parameter.values[at])) for at in every]
    record: Any = parameter.to_dict()
    low, high = float(parameter.low), float(parameter.high)
    if parameter.log:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        marks = [10.0**power for power in powers if low <= 10.0**power <= high]
        marks = marks if len(marks) >= 2 else [low, high]
    else:
        marks = [one for one in round_ticks(low, high, 5) if low <= one <= high] or [low, high]
    return [(float(spaces.to_unit(record, one)), f"{one:.10g}") for one in marks]


def value_ticks(values: Sequence[float]) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    return round_ticks(low, high, 6)


def value_axis(study: Study, x: float, values: Axis, ticks: Sequence[float]) -> list[str]:
    name = cut((study.metric or "value").rpartition("/")[2], 19)
    elements = [
        svg_line(x, TOP, x, BOTTOM, INK),
        svg_text(x, TOP - 16, name, size=13, anchor="middle", weight="600"),
    ]
    for tick in ticks:
        y = values.place(tick)
        elements.append(svg_line(x, y, x + 4, y, INK))
        elements.append(svg_text(x + 9, y + 4, f"{tick:.10g}", size=11))
    return elements


def legend(drawn: Sequence[Course], right: float) -> list[str]:
    cut_short = sum(1 for one in drawn if not one.is_full)
    told = f"{len(drawn) - cut_short} trained to the end, the best in orange"
    told += f"; {cut_short} cut short or running, in grey" if cut_short else ""
    return [svg_text(right, HEIGHT - 12, told, size=12, color=FAINT, anchor="end")]
