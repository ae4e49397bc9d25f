"""A cluster where the daemons and the jobs are those of an ordinary account, and none is root's."""

from __future__ import annotations

import pytest

from tests.conftest import Dray, Hpc
from tests.contract.test_contract import (  # noqa: F401
    TRAINER,
    python,
    test_daemons_of_the_command_end_with_it,
    test_output_is_kept_byte_for_byte,
    test_outputs_survive_a_failure,
    test_signals_from_outside_interrupt_and_the_job_goes_on,
    test_stop_asks_for_a_checkpoint_and_resume_goes_on,
    test_stop_now_kills_what_ignores_signals,
    test_the_command_receives_its_arguments_byte_for_byte,
    test_time_limits_are_survived,
)
from tests.integration.test_slurm import (  # noqa: F401
    far,
    test_a_waiting_job_tells_why_and_can_be_stopped,
    test_cancelled_before_it_ran,
    test_cancelled_by_somebody_else,
    test_pull_brings_only_what_is_new,
    test_secrets_reach_the_job_and_nothing_else,
)

pytestmark = pytest.mark.slurm


@pytest.fixture
def hpc(ordinary_hpc: Hpc) -> Hpc:
    return ordinary_hpc


@pytest.fixture
def on(dray: Dray, hpc: Hpc) -> tuple[str, str]:
    hpc.offer(dray)
    dray.write("train.py", TRAINER)
    return ("--on", "hpc")


def test_jobs_are_not_roots(dray: Dray, on: tuple[str, str], hpc: Hpc) -> None:
    job = dray.run(*on, *python("import os; print(os.getuid(), os.path.expanduser('~'))"))
    assert dray.wait(job)["state"] == "done"
    number, home = dray.log(job).split()
    assert number != "0"
    assert home == str(hpc.home)
