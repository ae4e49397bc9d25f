"""Settings of snapshots and notifications."""

from __future__ import annotations

from dray.job.options.option import Option
from dray.job.options.values import env_name, events, mailbox, yes_or_no
from dray.job.quantities import parse_duration, parse_size

SNAPSHOT_SIZE = Option(
    key="snapshot.max_size",
    parse=parse_size,
    help="A larger tree is refused, with its biggest folders named.",
    example='"2G"',
    default="1G",
    harmless=True,
)
SNAPSHOT = (SNAPSHOT_SIZE,)

NOTIFY_ON = Option(
    key="notify.on",
    many=True,
    parse=events,
    help="What is told: `done`, `failed` (also given up, and lost), `stopped`, and `started`"
    " (after a long wait).",
    example='["failed"]',
    default=["done", "failed", "started"],
)
NOTIFY_LONG_WAIT = Option(
    key="notify.long_wait",
    parse=parse_duration,
    help="How long a job has to wait for its first attempt for `started` to be told.",
    example='"15m"',
    default="1h",
)
NOTIFY = (
    *(
        Option(key=f"notify.{name}", parse=env_name, help=meaning, example=example)
        for name, meaning, example in (
            ("ntfy", "The secret that holds the URL of an ntfy topic.", '"NTFY_URL"'),
            ("slack", "The secret that holds the URL of a Slack webhook.", '"SLACK_WEBHOOK_URL"'),
            ("webhook", "The secret that holds a URL to post JSON to.", '"RUNS_WEBHOOK_URL"'),
        )
    ),
    Option(
        key="notify.mail",
        parse=mailbox,
        help="A mail address, written to by the `sendmail` of the node, the login node or this"
        " machine.",
        example='"me@example.org"',
    ),
    Option(
        key="notify.desktop",
        parse=yes_or_no,
        help="Whether this machine shows a notification when a dray command here sees the end.",
        example="true",
        default=False,
    ),
    NOTIFY_ON,
    Option(
        key="notify.after",
        parse=parse_duration,
        help="The end of a job that took less than this, from submission to end, is not told.",
        example='"10m"',
        default_text="none",
    ),
    NOTIFY_LONG_WAIT,
)
