#!/usr/bin/env bash
# As Isaac Lab 3.0's: train and play are told the library; -p runs Python.
set -e
export ISAACLAB_PATH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "$1" in
    train) exec python3 "$ISAACLAB_PATH/scripts/reinforcement_learning/train.py" "${@:2}" ;;
    -p|--python) exec python3 "${@:2}" ;;
    *) echo "usage: isaaclab.sh [-h] {train,play} …" ; exit 2 ;;
esac
