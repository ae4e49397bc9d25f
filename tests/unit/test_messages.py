"""Messages of the node side in the scheduler's own log."""

from __future__ import annotations

import subprocess
import sys

SAY = """
from dray.node.formats.messages import print_message
print_message('h\\u00e4llo \\udcff')
print_message('again')
"""


def test_a_message_is_written_at_once_and_as_it_is() -> None:
    said = subprocess.run([sys.executable, "-c", SAY], capture_output=True, check=True).stdout
    assert said == b"h\xc3\xa4llo \xff\nagain\n"


def test_a_full_disk_is_no_reason_to_fail() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-c", SAY], stdout=full, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (0, b"")
