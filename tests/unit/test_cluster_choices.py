"""What the user of a new cluster answers, as it is written to a file."""

from __future__ import annotations

import click
import pytest

from dray.cli.cluster_choices import answer, decide
from dray.clusters.options.kubernetes import CONTEXT, UID, VOLUMES
from dray.clusters.suggestion import Choice
from dray.errors import UsageError

CLAIMS = Choice("volumes", "there are 2 claims", ("pvc:a:/a", "pvc:b:/b"), "The first has jobs.")


def test_numbers_and_words_can_be_mixed() -> None:
    assert answer("2 pvc:c:/c", CLAIMS, VOLUMES) == ("pvc:b:/b", "pvc:c:/c")
    contexts = Choice("context", "several", ("lab", "2"))
    assert answer(" 1 ", contexts, CONTEXT) == "lab"
    assert answer("other", contexts, CONTEXT) == "other"
    assert answer("1234", Choice("uid", "which"), UID) == 1234


@pytest.mark.parametrize("text", ["3", "0", "pvc:a", "a b"])
def test_what_cannot_be_a_setting_is_asked_again(text: str) -> None:
    with pytest.raises(click.UsageError, match="--volumes"):
        answer(text, CLAIMS, VOLUMES)


def test_nobody_is_asked_without_a_terminal() -> None:
    with pytest.raises(UsageError, match="there are 2 claims") as refused:
        decide(CLAIMS, VOLUMES)
    assert "--volumes: pvc:a:/a, pvc:b:/b. The first has jobs." in refused.value.hint
