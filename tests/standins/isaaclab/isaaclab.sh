#!/bin/sh
# As Isaac Lab's: -p runs its Python.
export ISAACLAB_PATH="$(cd "$(dirname "$0")" && pwd)"
[ "$1" = -p ] && shift && exec python3 "$@"
exit 2
