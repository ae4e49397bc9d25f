"""No secret gets into what is sent to others."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.launcher.scrubbing import HIDDEN, named_values, scrub, secret_values

VALUE = 's3cr3t/va+lue &"quoted" ü'


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        json.dumps({"x": VALUE}),
        json.dumps({"x": VALUE}, ensure_ascii=False),
        quote(VALUE),
        base64.b64encode(VALUE.encode()).decode(),
        f"before{VALUE}after",
    ],
)
def test_a_known_value_in_every_form(text: str) -> None:
    shown = scrub(text, [VALUE])
    assert HIDDEN in shown
    for part in ("s3cr3t", "va+lue", base64.b64encode(VALUE.encode()).decode()[:20]):
        assert part not in shown


@pytest.mark.parametrize(
    "text",
    [
        "WANDB_API_KEY=PLAINVALUE99",
        "export HF_TOKEN='PLAINVALUE99'",
        '"db_password": "PLAINVALUE99",',
        "Authorization: Bearer PLAINVALUE99",
        "--api-key PLAINVALUE99 --epochs 3",
        "--password=PLAINVALUE99",
        "https://ada:PLAINVALUE99@example.org/repo.git",
        '{"name": "MY_SECRET", "value": "PLAINVALUE99"}',
        '{"name": "MY_SECRET",\n   "value": "PLAINVALUE99"}',
        "-----BEGIN OPENSSH PRIVATE KEY-----\nPLAINVALUE99\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nPLAINVALUE99",
        "    Variable_List = HOME=/home/ada,X=PLAINVALUE99,\n\tY=PLAINVALUE99\n    comment = x",
        '"command": [\n  "--api-key",\n  "PLAINVALUE99"\n]',
        "{'SOME_TOKEN': 'PLAINVALUE99'}",
        "Variable_List = X=PLAINVALUE99\n",
    ],
)
def test_what_stands_behind_a_telling_name(text: str) -> None:
    shown = scrub(text, [])
    assert "PLAINVALUE99" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "hf_" + "Zz09" * 8,
        "sk-proj-" + "a1B2" * 6,
        "AKIA" + "ABCD1234" * 2,
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    ],
)
def test_tokens_by_their_form(token: str) -> None:
    assert token not in scrub(f"got {token}, and went on", [])


def test_a_key_without_a_name_in_a_jobs_output() -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    assert key not in scrub(f"key {key}\n", [], is_output=True)
    assert named_values([f"WANDB_API_KEY={key}\n"]) == {key}


def test_what_is_no_secret_stays() -> None:
    text = (
        "epoch 3: loss 0.123 tokens/s 5000\n/scratch/ada/dray/jobs/anymal-7f3k/batch.log\n"
        "Traceback (most recent call last):\n#SBATCH --gres=gpu:1\nkeyboard: author=adalovelace\n"
    )
    assert scrub(text, ["", "abc"], is_output=True) == text


def test_variables_by_their_names() -> None:
    found = secret_values({"AWS_SECRET_ACCESS_KEY": "one", "HOME": "/home/ada", "hf_token": "two"})
    assert found == ["one", "two"]


@given(st.text(min_size=6).filter(lambda one: len(one.strip()) >= 6), st.text())
def test_a_known_value_is_never_left(value: str, around: str) -> None:
    shown = scrub(around + value.strip() + around, [value])
    assert value.strip() not in shown.replace(HIDDEN, "") or value.strip() in HIDDEN
