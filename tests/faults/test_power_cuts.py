"""The power may go at any moment: a job whose id was printed is there afterwards, and ends once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.conftest import PROPERTY
from tests.faults.cuts import Cut, Record, after, record, restore
from tests.faults.disk import MODELS, tree_of
from tests.faults.kinds import Kind
from tests.faults.trial import REPRODUCE, Undisturbed, surroundings

pytestmark = [pytest.mark.faults]

SAMPLE, ALL = 12, 150  # cuts for each model


@pytest.fixture(scope="module")
def told(kind_of: Callable[[str], Kind]) -> Iterator[Record]:
    kind = kind_of("local")
    with surroundings(kind, messages=False) as site:
        yield record(site, kind)


@pytest.mark.xdist_group("cuts")
def test_a_disk_on_which_all_arrived_is_as_it_was(told: Record) -> None:
    before = tree_of(told.site.home, ["dray"])
    restore(told, Cut("strict", 0, len(told.calls)), everything=True)
    assert tree_of(told.site.home, ["dray"]) == before


@pytest.mark.xdist_group("cuts")
@pytest.mark.parametrize("model", MODELS)
def test_power_cuts(
    model: str,
    told: Record,
    usual: Callable[[str, str], Undisturbed],
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    everything = request.config.getoption("--all-points")
    cuts = told.sample(model, ALL if everything else SAMPLE)
    for cut in cuts:
        record_property(PROPERTY, str(cut))
    report(told, cuts, usual)


def test_cut(
    told: Record, usual: Callable[[str, str], Undisturbed], request: pytest.FixtureRequest
) -> None:
    """The one that is named: make faults POINT=cut:…"""
    text = request.config.getoption("--point")
    if not text.startswith("cut:"):
        pytest.skip("it is no power cut that is named")
    report(told, [Cut.read(text)], usual)


def report(told: Record, cuts: list[Cut], usual: Callable[[str, str], Undisturbed]) -> None:
    clean = usual("local", "train").tree
    wrong = {cut: after(told, cut, clean) for cut in cuts}
    failed = [
        f"{REPRODUCE}{cut}  # after {describe(told, cut)}: {'; '.join(found)}"
        for cut, found in wrong.items()
        if found
    ]
    assert not failed, "\n" + "\n".join(failed)


def describe(told: Record, cut: Cut) -> str:
    call = told.calls[cut.moment - 1]
    return f"{call.role} {call.name} {call.path.removeprefix(str(told.site.home))}"
