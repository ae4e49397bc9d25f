"""What ssh is told of jobs: names, accounts, and the line in the user's file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.slurm import entrance_of
from dray.errors import UsageError
from dray.home import Home
from dray.sessions.ssh.config import include_line, is_included, options, with_include
from dray.sessions.ssh.keys import Keys, checked_user
from dray.sessions.ssh.names import Target, parse

OURS = Path("/home/me/.local/share/dray/ssh/config")


@pytest.mark.parametrize(
    "target",
    [
        Target("train-7f3k"),
        Target("train-7f3k.12"),  # of an array
        Target("host-1a2b", host=True),
        Target("rank1-1a2b.3", rank=4),
        Target("x", rank=1, host=True),
        Target("nightly-7f3k.train.3", rank=1, host=True),  # of a batch
    ],
)
def test_a_name_means_one_target(target: Target) -> None:
    assert parse(target.name) == target


@pytest.mark.parametrize(
    "name",
    ["", ".dray", "-x.dray", "a b.dray", "../x.dray", "x.dray\n", "x.rank0.dray", "x.DRAY", "x"],
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a job"):
        parse(name)


@pytest.mark.parametrize("name", ["jdoe", "j.doe-2", "jdoe@uni.example", r"UNI\jdoe", "_svc$"])
def test_an_account(name: str) -> None:
    assert checked_user(name) == name


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a\nb", "a\tb", "a\\", "%h", '"x', "#x"])
def test_what_is_no_account(name: str) -> None:
    assert checked_user(name) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (include_line(OURS), True),
        (f"\n# x\n  include\t=  {OURS}\nHost a\n", True),
        (f"Include other\nINCLUDE {OURS}", True),
        (f"Host a\n{include_line(OURS)}", False),  # only for that host
        (f"match all\n{include_line(OURS)}", False),
        (f"# {include_line(OURS)}", False),
        ("", False),
    ],
)
def test_where_a_line_counts(text: str, expected: bool) -> None:
    assert is_included(text, OURS) is expected


@given(st.text())
def test_all_that_was_there_stays(text: str) -> None:
    once = with_include(text, OURS)
    assert once.endswith(text)
    assert is_included(once, OURS)
    assert with_include(once, OURS) == once


def test_what_is_set_for_all_hosts_offers_nothing_of_this_machine(tmp_path: Path) -> None:
    keys = Keys(Home(tmp_path, tmp_path, tmp_path))
    lines = ["Host *.dray", *(f"{key} {value}" for key, value in options(keys)), "Host *"]
    lines += [f"{name} yes" for name in ("ForwardAgent", "ForwardX11", "ForwardX11Trusted")]
    config = tmp_path / "config"
    config.write_text("\n".join([*lines, "Tunnel point-to-point", ""]))

    def seen(*words: str) -> dict[str, str]:
        words = ("ssh", "-F", str(config), "-G", *words)
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return dict(line.split(" ", 1) for line in told.lower().splitlines())

    for name in ("forwardagent", "forwardx11", "forwardx11trusted", "tunnel"):
        assert seen("a-1.dray")[name] in ("no", "false"), name
        assert seen("elsewhere")[name] not in ("no", "false"), name
    assert seen("-A", "a-1.dray")["forwardagent"] == "yes"


def test_keys_that_somebody_has_meddled_with_hurt_no_other(tmp_path: Path) -> None:
    """What is no job's folder is left alone, and what a killed process left is swept."""
    keys = Keys(Home(tmp_path, tmp_path, tmp_path))
    first, second = Target("one-1a2b"), Target("two-3c4d", rank=1)
    made = keys.of(first, lambda job: False)
    assert made.authorized.startswith("ssh-ed25519 ")
    (keys.jobs / "notes").mkdir()
    (keys.jobs / ".two-3c4d.dray.99").mkdir()
    keys.remember_user(first, "jdoe")
    assert keys.of(second, lambda job: False) != made
    assert keys.of(first, lambda job: False) == made
    assert sorted(one.name for one in keys.jobs.iterdir()) == ["notes", first.name, second.name]
    assert keys.users.read_text() == f"Host {first.name}\n    User jdoe\n"
    assert [line.split()[0] for line in keys.known_hosts.read_text().splitlines()] == [
        first.name,
        second.name,
    ]
    (keys.jobs / first.name / "user").write_text("x\n  ProxyCommand touch /tmp/x")
    keys.forget("two-3c4d")
    assert keys.users.read_text() == ""
    assert keys.known_hosts.read_text().split()[0] == first.name
    third = keys.of(Target("three-5e6f"), lambda job: job == "one-1a2b")
    assert third.host_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert not (keys.jobs / first.name).exists()


@pytest.mark.parametrize(
    ("version", "way"),
    [
        ("slurm 22.05.8", "srun --overlap"),
        ("slurm-wlm 20.11.4", "srun --overlap"),
        ("", "srun --overlap"),
        ("slurm 19.05.5", ""),
    ],
)
def test_a_slurm_that_is_too_old_to_be_entered(version: str, way: str) -> None:
    entrance = entrance_of(version)
    assert entrance.way.startswith(way)
    assert bool(entrance.reason) == (not way)
