"""A secret comes from the environment, the keyring or ~/.netrc, and from nowhere else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.config.secrets import resolve
from dray.description.describing import notes_on_exposed_secrets
from dray.errors import UsageError
from tests.conftest import Dray

FILE_BACKEND = "keyrings.alt.file.PlaintextKeyring"
NO_BACKEND = "keyring.backends.fail.Keyring"


class Machine:
    """A user's home, with a keyring that is a file in it, or none that can be opened."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "PYTHON_KEYRING_BACKEND": FILE_BACKEND,
            "PATH": os.defpath,
        }

    def python(self, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )

    def store(self, name: str, value: str) -> None:
        code = "import keyring, sys; keyring.set_password('dray', *sys.argv[1:])"
        assert self.python(code, name, value).returncode == 0

    def netrc(self, content: str, name: str = ".netrc") -> Path:
        path = self.home / name
        path.write_text(content)
        path.chmod(0o600)
        return path

    def resolve(self, *names: str) -> dict[str, str]:
        code = (
            "import json, os, sys; from dray.config.secrets import resolve;"
            "print(json.dumps(resolve(sys.argv[1:], os.environ)))"
        )
        ended = self.python(code, *names)
        assert ended.returncode == 0, ended.stderr
        values: dict[str, str] = json.loads(ended.stdout)
        return values


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_environment_comes_first(machine: Machine) -> None:
    machine.store("TOKEN", "from the keyring")
    machine.netrc("machine TOKEN login me password from-netrc")
    machine.env["TOKEN"] = "from the environment"
    assert machine.resolve("TOKEN") == {"TOKEN": "from the environment"}


def test_then_the_keyring(machine: Machine) -> None:
    machine.store("TOKEN", "ü from the keyring")
    machine.netrc("machine TOKEN login me password from-netrc")
    machine.env["TOKEN"] = ""
    assert machine.resolve("TOKEN") == {"TOKEN": "ü from the keyring"}


@pytest.mark.parametrize("backend", [FILE_BACKEND, NO_BACKEND])
def test_then_netrc(machine: Machine, backend: str) -> None:
    machine.env["PYTHON_KEYRING_BACKEND"] = backend
    machine.netrc(
        "machine TOKEN login me password by-name\n"
        "machine api.wandb.ai login user password by-host\n"
        "default login anonymous password nobody\n"
    )
    expected = {"TOKEN": "by-name", "WANDB_API_KEY": "by-host"}
    assert machine.resolve("TOKEN", "WANDB_API_KEY") == expected


def test_netrc_may_lie_elsewhere(machine: Machine) -> None:
    machine.env["PYTHON_KEYRING_BACKEND"] = NO_BACKEND
    machine.env["NETRC"] = str(machine.netrc("machine TOKEN password there", "elsewhere"))
    assert machine.resolve("TOKEN") == {"TOKEN": "there"}


@pytest.fixture
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where dray was installed without it."""
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.mark.usefixtures("no_keyring")
class TestWithoutKeyring:
    def test_nothing_found_says_where_it_could_be(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="the secret WANDB_API_KEY was found nowhere") as told:
            resolve(["WANDB_API_KEY"], {"HOME": str(tmp_path)})
        assert told.value.exit_code == 2
        for way in ("variable WANDB_API_KEY", "keyring set dray", "machine api.wandb.ai", "netrc"):
            assert way in told.value.hint

    def test_the_default_entry_of_netrc_is_nobodys_secret(self, tmp_path: Path) -> None:
        (tmp_path / ".netrc").write_text("default login anonymous password nobody\n")
        with pytest.raises(UsageError, match="found nowhere"):
            resolve(["TOKEN"], {"HOME": str(tmp_path)})

    @pytest.mark.parametrize(
        "content", [b"machine TOKEN oops what", b"machine \xff\xfe password x"]
    )
    def test_a_netrc_that_cannot_be_read_is_named(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / ".netrc").write_bytes(content)
        with pytest.raises(UsageError, match=r"\.netrc cannot be read"):
            resolve(["TOKEN"], {"HOME": str(tmp_path)})

    def test_netrc_is_not_read_for_what_is_in_the_environment(self, tmp_path: Path) -> None:
        (tmp_path / ".netrc").mkdir()
        assert resolve(["TOKEN"], {"HOME": str(tmp_path), "TOKEN": "x"}) == {"TOKEN": "x"}

    def test_no_secrets_wanted(self) -> None:
        assert resolve([], {}) == {}


# -- variables that look like secrets -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_API_KEY", "0123"),
        ("KEY", "x"),
        ("hf_token", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("MY_SECRETS", "x"),
        ("DB_PASSWORD", "x"),
        ("X", "hf_abcdefghijkl"),
        ("X", "ghp_abcdefghijkl"),
        ("X", "sk-proj-abcdefgh"),
        ("X", "AKIAIOSFODNN7EXAMPLE"),
        ("X", "xoxb-1234"),
        ("X", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"),
    ],
)
def test_a_variable_that_looks_like_a_secret_is_told(name: str, value: str) -> None:
    (note,) = notes_on_exposed_secrets({"OMP_NUM_THREADS": "4", name: value})
    assert note.startswith(f"{name} looks like a secret")
    assert f"--secret {name}" in note
    assert value not in note or len(value) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_API_KEY", ""),  # to unset it
        ("TOKENIZERS_PARALLELISM", "false"),
        ("KEYBOARD", "us"),
        ("MONKEY", "1"),
        ("MODEL", "sk-1"),
        ("TASK", "AKIA"),
        ("PATH", "/usr/bin"),
    ],
)
def test_other_variables_are_not(name: str, value: str) -> None:
    assert notes_on_exposed_secrets({name: value}) == ()


def test_it_is_told_at_submission_for_flags_and_files(dray: Dray) -> None:
    dray.write("dray.toml", "[job.env]\nDB_PASSWORD = 'x'\n")
    told = dray("run", "--env", "HF=hf_0123456789", "--env", "A=1", "--", "true")
    assert "DB_PASSWORD looks like a secret" in told.stderr
    assert "--secret HF instead" in told.stderr
    assert "hf_0123" not in told.stderr
    assert "A looks like" not in told.stderr
    dray.wait(told.stdout.strip())
    assert "note      HF looks like a secret" in dray("plan", "--env", "HF=ghp_012345678",
                                                      "--", "true").stdout  # fmt: skip
