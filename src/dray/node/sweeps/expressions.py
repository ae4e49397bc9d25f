"""Small expressions that a sweep has in it: arithmetic of parameters, and conditions on metrics.

They come from a description that anybody may have written: nothing is ever called but what is
listed here, and no number may grow without end.
"""

import ast
import math
import operator
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Set  # noqa: F401

LONGEST = 1000  # characters
LARGEST_POWER = 64
MOST_DIGITS = 64  # that something is rounded to: round() computes the power of ten
LARGEST = 1 << 256
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}  # type: Dict[Any, Callable[[Any, Any], Any]]
SIGNS = {ast.UAdd: operator.pos, ast.USub: operator.neg}  # type: Dict[Any, Callable[[Any], Any]]
FUNCTIONS = {
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "round": round,
}  # type: Dict[str, Callable[..., Any]]
NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
CONDITION = re.compile(
    r"(?P<name>[^<>=!'\"]*[^<>=!'\"\s])\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<number>" + NUMBER + r")"
    r"(?:\s+after\s+(?P<after>[0-9]{1,15}))?$"
)
COMPARISONS = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}  # type: Dict[str, Callable[[float, float], bool]]
NOT_A_NUMBER = "nan"  # the condition that the sweep's own metric is none


class NotAnExpression(ValueError):
    """The text is not an expression of this kind, or has no value."""


# -- arithmetic ---------------------------------------------------------------------------------


def parse(formula: str) -> "Any":
    if len(formula) > LONGEST:
        raise NotAnExpression("a formula of more than {} characters".format(LONGEST))
    try:
        return ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotAnExpression("'{}' is not arithmetic".format(formula))


def names_in(formula: str) -> "Set[str]":
    """Return the names of parameters in a formula, as it spells them."""
    found = set()  # type: Set[str]
    collect(parse(formula), found)
    return found


def collect(node: "Any", found: "Set[str]") -> None:
    name = dotted(node)
    if name:
        found.add(name)
        return
    for child in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        collect(child, found)


def dotted(node: "Any") -> str:
    """Return a name such as agent.lr; '' where the node is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return "{}.{}".format(before, node.attr) if before else ""
    return ""


def evaluate(formula: str, known: "Mapping[str, Any]") -> "Any":
    """Compute a formula from the values that it names."""
    try:
        return bounded(value_of(parse(formula), known))
    except NotAnExpression:
        raise
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise NotAnExpression("'{}' has no value: {}".format(formula, error))


def value_of(node: "Any", known: "Mapping[str, Any]") -> "Any":
    name = dotted(node)
    if name:
        if name not in known:
            raise NotAnExpression("there is no parameter '{}'".format(name))
        return known[name]
    number = getattr(node, "n", None) if type(node).__name__ == "Num" else None
    if type(node).__name__ == "Constant":
        number = node.value
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return number
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return combine(node.op, value_of(node.left, known), value_of(node.right, known))
    if isinstance(node, ast.UnaryOp) and type(node.op) in SIGNS:
        return SIGNS[type(node.op)](numeric(value_of(node.operand, known)))
    if isinstance(node, ast.Call) and not node.keywords:
        return call(node, [numeric(value_of(one, known)) for one in node.args])
    known_ones = ", ".join(sorted(FUNCTIONS))
    raise NotAnExpression(
        "only numbers, parameters, + - * / // % ** and {} are understood".format(known_ones)
    )


def call(node: "Any", given: "List[Any]") -> "Any":
    function = FUNCTIONS.get(dotted(node.func))
    if function is None or not given:
        raise NotAnExpression("there is no function '{}'".format(dotted(node.func)))
    if function is round and any(abs(digits) > MOST_DIGITS for digits in given[1:]):
        raise NotAnExpression("rounded to more than {} digits".format(MOST_DIGITS))
    return bounded(function(*given))


def combine(sign: "Any", left: "Any", right: "Any") -> "Any":
    left, right = numeric(left), numeric(right)
    if isinstance(sign, ast.Pow) and abs(right) > LARGEST_POWER:
        raise NotAnExpression("a power of more than {}".format(LARGEST_POWER))
    return bounded(OPERATORS[type(sign)](left, right))


def numeric(value: "Any") -> "Any":
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotAnExpression("{!r} is not a number".format(value)[:200])
    return value


def bounded(value: "Any") -> "Any":
    """Refuse what is too large, or no real number: nan is not at most anything."""
    is_number = isinstance(value, (int, float))
    if isinstance(value, complex) or (is_number and not abs(value) <= LARGEST):
        raise NotAnExpression("the value is out of all bounds")
    return value


# -- conditions ---------------------------------------------------------------------------------


class Condition:
    """``NAME < NUMBER [after STEP]``, or ``nan``: the sweep's metric is not a number."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.name = ""
        self.after = 0
        if self.text.lower() == NOT_A_NUMBER:
            return
        if len(text) > LONGEST:
            raise NotAnExpression("a condition of more than {} characters".format(LONGEST))
        found = CONDITION.match(self.text)
        if found is None:
            raise NotAnExpression(
                "'{}' is not a condition such as 'Loss > 100 after 20', or nan".format(text)
            )
        self.name = found.group("name")
        self.after = int(found.group("after") or 0)
        self._compare = COMPARISONS[found.group("sign")]
        self._number = float(found.group("number"))

    def holds(self, step: int, value: "Optional[float]") -> bool:
        """Return whether it holds for the latest value of its metric; None is not a number."""
        if not self.name:
            return value is None or not math.isfinite(value)
        return step >= self.after and value is not None and self._compare(value, self._number)
