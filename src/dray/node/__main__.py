"""The zipapp's entry: ``python -I -S dray-node.pyz keep JOBDIR ALIVE_FD TICKET_FD``."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(arguments: "List[str]") -> int:
    if len(arguments) == 4 and arguments[0] == "keep":
        from . import keeper

        return keeper.main(arguments[1], int(arguments[2]), int(arguments[3]))
    sys.stderr.write("usage: dray-node keep JOBDIR ALIVE_FD TICKET_FD\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
