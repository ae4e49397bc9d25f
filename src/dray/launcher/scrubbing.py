"""Takes secrets out of texts that are sent to others. Pure.

What is known to be a secret is looked for as it is and in the forms that programs print it in;
beyond that, whatever stands behind a name that sounds like one, and what has the form of a known
kind of token."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "«hidden»"
SHORTEST = 6  # characters of a value that is looked for: shorter ones are in every text
NAME = (
    r"[A-Za-z0-9_.-]*(?:PASSW(?:OR)?D|PASSWD|PASSPHRASE|SECRET|TOKEN|API[_-]?KEY|ACCESS[_-]?KEY"
    r"|PRIVATE[_-]?KEY|CREDENTIALS?|AUTH(?:ORIZATION)?(?![A-Za-z])|COOKIE|SESSION[_-]?KEY)"
    r"[A-Za-z0-9_.-]*"
)
# NAME=value, NAME: value, "name": "value", --name value, "--name", "value"
BEHIND = rf"(?<![A-Za-z0-9_.-])-{{0,2}}{NAME}[\"']?(?:\s*[=:]\s*|\s+|,\s*(?=[\"']))[\"']?"
SOUNDS_SECRET = re.compile(NAME, re.IGNORECASE)
PATTERNS = (
    # a private key, whole
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
                re.S), HIDDEN),
    # https://user:password@host
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{0,200}:)[^\s/@]{1,500}(@)", re.I),
     rf"\1{HIDDEN}\2"),
    # "name": "WANDB_API_KEY", "value": "…", in either order
    (re.compile(rf'("name":\s*"{NAME}",\s*"value":\s*")[^"]*(")', re.I), rf"\1{HIDDEN}\2"),
    # Authorization: Bearer …
    (re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.I), rf"\1{HIDDEN}"),
    (re.compile(rf'({BEHIND})(?![=:\s"\'«])[^\s"\',;]{{4,}}', re.I), rf"\1{HIDDEN}"),
    # tokens that are known by their form
    (re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|hf_[A-Za-z0-9]{20,}"
                r"|sk-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[A-Z0-9]{16}"
                r"|AIza[\w-]{30,}|dckr_pat_[\w-]{15,}|npm_[A-Za-z0-9]{30,}|nvapi-[\w-]{20,}"
                r"|wandb_v1_\w{20,})"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}"), HIDDEN),  # a JSON web token
)  # fmt: skip
# What a batch system tells of the shell that a job was submitted from.
VARIABLE_LISTS = re.compile(
    r"^(\s*(?:Variable_List|environment) = ).*?(?=^\s*[\w.]+ = |^\S|\Z)", re.M | re.S
)
# Behind such a name; what is found there is a secret wherever else it stands.
NAMED = re.compile(rf"{BEHIND}([^\s\"',;«]{{8,500}})", re.I)
# Long and of letters and digits: a key without a name, or a hash, which nobody needs in a log.
LONG = re.compile(r"(?<![\w/.-])(?=[\w+-]*[0-9])(?=[\w+-]*[A-Za-z])[\w+-]{32,}={0,2}(?![\w/.-])")


def scrub(text: str, known: Iterable[str], *, is_output: bool = False) -> str:
    """Return the text without secrets; ``known`` are values that are certain to be some. In the
    output of a program, whatever looks like a key without a name is taken out too."""
    for form in sorted({one for value in known for one in forms(value)}, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    text = VARIABLE_LISTS.sub(rf"\1{HIDDEN}\n", text)
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return LONG.sub(HIDDEN, text) if is_output else text


def named_values(texts: Iterable[str]) -> set[str]:
    """Return what stands behind a name that sounds like a secret, in any of these texts."""
    return {value for text in texts for value in NAMED.findall(text)}


def forms(value: str) -> set[str]:
    """Return the ways in which a value may have been written."""
    whole = value.strip()
    if len(whole) < SHORTEST:
        return set()
    raw = whole.encode("utf-8", "surrogateescape")
    found = {
        whole,
        json.dumps(whole)[1:-1],
        json.dumps(whole, ensure_ascii=False)[1:-1],
        quote(whole, errors="replace"),
        quote_plus(whole, errors="replace"),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        *(line for line in whole.splitlines() if len(line) >= SHORTEST),
    }
    return {one for one in found if len(one) >= SHORTEST}


def secret_values(variables: Mapping[str, str]) -> list[str]:
    """Return the values of the variables whose names sound like secrets."""
    return [value for name, value in variables.items() if SOUNDS_SECRET.fullmatch(name) and value]
