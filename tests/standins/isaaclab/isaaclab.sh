#!/usr/bin/env bash
# As Isaac Lab's: needs a terminal of some name, and finds its Python in an active environment, or
# in the binary installation that a link in its own folder leads to. -p runs it, and waits for it.
set -e
tabs 4
export ISAACLAB_PATH="$(cd "$(dirname "$0")" && pwd)"
python="$(command -v python3)"
if [ -n "$STANDIN_BINARY" ]; then
    python="$ISAACLAB_PATH/_isaac_sim/python.sh"
    if [ ! -f "$python" ]; then
        echo "[ERROR] Unable to find any Python executable at path: '$python'" >&2
        exit 1
    fi
fi
case "$1" in
    -p|--python)
        shift
        echo "[INFO] Using python from: $python"
        "$python" "$@"
        ;;
    *)
        echo "[Error] Invalid argument provided: $1"
        exit 1
        ;;
esac
