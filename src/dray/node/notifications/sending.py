"""Sends a notice by HTTP or mail, within seconds. Errors are reported without the address."""

import os
import time

from . import notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ..formats.records import Notice

STEP = 5.0  # seconds for a connection, or for an answer
PATIENCE = 10.0  # seconds for all channels together, whatever a resolver or a server does
SENDMAIL_PLACES = ("/usr/sbin", "/usr/lib", "/sbin")


def send_all(to: "Dict[str, str]", facts: "Notice", seconds: float = PATIENCE) -> "Dict[str, str]":
    """Send the notice over all channels at once. Return why each failed, or "" if it was sent. A
    channel that takes too long is left alone: a name lookup cannot be cancelled."""
    import threading  # only where there is something to send

    failures = dict.fromkeys(to, "no answer within {:g} s".format(seconds))

    def send_one(channel: str, address: str) -> None:
        failures[channel] = send(channel, address, facts)

    threads = [
        threading.Thread(target=send_one, args=one, daemon=True) for one in sorted(to.items())
    ]
    until = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    return dict(failures)


def send(channel: str, address: str, facts: "Notice") -> str:
    """Send the notice over one channel. Return why it failed, without the address; "" if it was
    sent."""
    try:
        if channel == notify.MAIL:
            return mail(notify.mail_to(address, facts))
        return post(notify.request_to(channel, address, facts))
    except Exception as error:  # of any sort: a library's text could hold the address
        return described(error)


def post(request: notify.Request) -> str:
    """Send the request; no redirect is followed, as it could lead anywhere."""
    import urllib.error
    import urllib.request

    from ..formats.web import opener  # only where there is something to send

    asked = urllib.request.Request(request.url, request.body, request.headers, method="POST")
    try:
        opener(PATIENCE).open(asked, timeout=STEP).close()
    except urllib.error.HTTPError as error:
        error.close()
        return "it answered {}".format(error.code)
    except urllib.error.URLError as error:
        reason = error.reason
        return described(reason) if isinstance(reason, Exception) else "it cannot be reached"
    return ""


def described(error: Exception) -> str:
    number = getattr(error, "errno", None)
    text = getattr(error, "strerror", None) if isinstance(number, int) else None
    return "{} ({})".format(type(error).__name__, text) if text else type(error).__name__


def mail(message: bytes) -> str:
    """Send a mail with the program that every mail system has, which reads the recipient from the
    message."""
    import shutil
    import subprocess

    places = [os.environ.get("PATH") or os.defpath]
    program = shutil.which("sendmail", path=os.pathsep.join(places + list(SENDMAIL_PLACES)))
    if program is None:
        return "there is no sendmail"
    running = subprocess.Popen(
        [program, "-i", "-t"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    try:
        running.communicate(message, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
        return "sendmail took too long"
    return (
        "sendmail ended with exit code {}".format(running.returncode) if running.returncode else ""
    )
