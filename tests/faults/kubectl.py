"""A kubectl for tests without a Kubernetes: it asks the process of the tests, and runs in a helper
what is to be executed there. Standard library only; started as a program of its own."""

import json
import os
import socket
import subprocess
import sys

HELPER = "/usr/bin:/bin"


def words_after(flag: str) -> list[str]:
    return sys.argv[sys.argv.index(flag) + 1 :]


def ask(question: object) -> dict:  # type: ignore[type-arg]
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.environ["KUBE_SOCKET"])
        link.sendall(json.dumps(question).encode() + b"\n")
        with link.makefile("rb") as answer:
            return json.loads(answer.readline())  # type: ignore[no-any-return]


def refuse(reason: str, message: str) -> None:
    sys.exit(f"Error from server ({reason}): {message}")


def execute() -> None:
    if not ask({"helper": True})["there"]:
        refuse("NotFound", "pods not found")
    command = words_after("--")
    env = {"PATH": f"{os.environ['KUBE_PATH']}:{HELPER}", "HOME": "/"}
    # In a pod, it does not end with the kubectl that it was started by.
    sys.exit(subprocess.call(command, env=env, start_new_session=True))


def request(method: str, path: str) -> None:
    thing = json.load(sys.stdin) if "-f" in sys.argv else None
    tell(ask({"method": method, "path": path, "thing": thing}))


def patch(kind: str, name: str) -> None:
    change = next(one for one in sys.argv if one.startswith("--patch=")).partition("=")[2]
    path = f"/api/v1/namespaces/sim/{kind}/{name}"
    tell(ask({"method": "PATCH", "path": path, "thing": json.loads(change)}))


def tell(reply: dict) -> None:  # type: ignore[type-arg]
    if reply["code"] >= 300:
        refuse({404: "NotFound", 409: "AlreadyExists"}[reply["code"]], "refused")
    print(json.dumps(reply["record"]))


verb, *rest = [one for one in sys.argv[1:] if not one.startswith("--")]
if verb == "exec":
    execute()
elif verb == "patch":
    patch(*rest[:2])
elif verb in ("get", "create", "delete"):
    method = {"get": "GET", "create": "POST", "delete": "DELETE"}[verb]
    request(method, words_after("--raw")[0])
else:
    sys.exit(f"error: this kubectl cannot {verb}")
