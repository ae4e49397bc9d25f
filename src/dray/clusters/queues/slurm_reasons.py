"""Says in plain words why Slurm does not start a job. Pure.

Slurm has some two hundred reasons. Most of them are limits, and their names follow a grammar:

    [QOS|Assoc] Grp|Max|Min  WHAT  [Minutes|RunMinutes|RunMins]  [PerJob|PerNode|PerUser|PerAccount]

so these are parsed; the others are in a table. Behind a comma, some say more."""

from __future__ import annotations

import re

from dray.job.situation import Reason

TIME_ADVICE = "Ask for less time: it is resumed until it is done."
ASK_ADVICE = "Ask the cluster's admins."
RELEASE = "scontrol release"

# Reasons that are not limits: words, whether the job never starts as it is, and what to do.
REASONS = {
    "None": Reason("Slurm has not looked at it yet"),
    "Priority": Reason("others are before it in the queue"),
    "Resources": Reason("waiting for enough free nodes"),
    "Dependency": Reason("waiting for another job, or its own attempt before, to end"),
    "DependencyNeverSatisfied": Reason(
        "it waits for another job that has failed", never=True, advice="Stop it, then resume it."
    ),
    "BeginTime": Reason("waiting for its start time"),
    "JobHeldUser": Reason(f"held by you ({RELEASE})", never=True),
    "JobHeldAdmin": Reason("held by an administrator", never=True, advice=ASK_ADVICE),
    "JobHoldMaxRequeue": Reason(
        f"requeued too often, and held therefore ({RELEASE})", never=True, advice=ASK_ADVICE
    ),
    "JobArrayTaskLimit": Reason("as many jobs of its array run as it allows at once"),
    "ReqNodeNotAvail": Reason("the nodes it needs are down or reserved"),
    "NodeDown": Reason("a node that it needs is down"),
    "FrontEndDown": Reason("the front end that it needs is down"),
    "PartitionTimeLimit": Reason(
        "it asks for more time than the partition allows", never=True, advice=TIME_ADVICE
    ),
    "PartitionNodeLimit": Reason(
        "it asks for more nodes than the partition has", never=True, advice="Ask for fewer nodes."
    ),
    "PartitionDown": Reason("its partition is closed for now", advice="Or use another partition."),
    "PartitionInactive": Reason("its partition is closed", advice="Or use another partition."),
    "PartitionConfig": Reason("its partition does not take such jobs", never=True),
    "Reservation": Reason("waiting for its reservation to begin"),
    "ReservationDeleted": Reason(
        "its reservation is gone", never=True, advice="Leave out the setting reservation."
    ),
    "ReservationInvalid": Reason(
        "its reservation cannot be used", never=True, advice="Leave out the setting reservation."
    ),
    "Licenses": Reason("waiting for a licence"),
    "BadConstraints": Reason(
        "no node has what it asks for", never=True, advice="Compare with: dray doctor CLUSTER"
    ),
    "Constraints": Reason("no free node has what it asks for"),
    "MaxMemPerLimit": Reason("it asks for more memory than a node may give one job", never=True),
    "InvalidAccount": Reason("its account is not valid", never=True, advice=ASK_ADVICE),
    "InvalidQOS": Reason("its QoS is not valid", never=True, advice=ASK_ADVICE),
    "QOSNotAllowed": Reason("its QoS may not be used there", never=True, advice="Use another."),
    "AccountNotAllowed": Reason(
        "its account may not be used there", never=True, advice="Use another."
    ),
    "AccountingPolicy": Reason("a rule of the accounts keeps it back"),
    "AssociationJobLimit": Reason("you have as many jobs as your account allows"),
    "AssociationResourceLimit": Reason("your account uses as much as it may"),
    "AssociationTimeLimit": Reason("your account's time is used up", never=True),
    "QOSJobLimit": Reason("there are as many jobs as its QoS allows"),
    "QOSResourceLimit": Reason("its QoS uses as much as it may"),
    "QOSTimeLimit": Reason("its QoS's time is used up", never=True),
    "QOSUsageThreshold": Reason("your use is above what its QoS allows", advice=ASK_ADVICE),
    "BurstBufferResources": Reason("waiting for room in the burst buffer"),
    "BurstBufferStageIn": Reason("its files are being brought to the burst buffer"),
    "BurstBufferOperation": Reason("the burst buffer is at work"),
    "PowerNotAvail": Reason("waiting for electrical power"),
    "PowerReserved": Reason("waiting for electrical power"),
    "MaxPoweredUpNodes": Reason("as many nodes are switched on as may be"),
    "SchedDefer": Reason("Slurm has not looked at it yet"),
    "Cleaning": Reason("its last attempt is being cleared away"),
    "Prolog": Reason("its nodes are being made ready"),
    "FedJobLock": Reason("another cluster of the federation is deciding about it"),
    "MpiPortsBusy": Reason("waiting for free ports for MPI"),
    # of jobs that have ended
    "SystemFailure": Reason("Slurm itself failed"),
    "JobLaunchFailure": Reason("it could not be started on its node", advice=ASK_ADVICE),
    "NonZeroExitCode": Reason("it ended with an exit code other than 0"),
    "RaisedSignal": Reason("it was ended by a signal"),
    "TimeLimit": Reason("its time limit ended it"),
    "InactiveLimit": Reason("it did nothing for too long"),
    "DeadLine": Reason("its deadline has passed", never=True),
    "OutOfMemory": Reason("it used more memory than it had asked for"),
    "BlockMaxError": Reason("a part of the machine has failed too often"),
    "BlockFreeAction": Reason("a part of the machine is being cleared"),
}

LIMIT = re.compile(
    "(QOS|Assoc)?(Grp|Max|Min)"
    "(Cpu|CPU|GRES|Memory|Mem|Node|SubmitJobs?|Jobs|WallDuration|Wall|Billing|BB|Energy|License"
    "|Unknown)"
    "(RunMinutes|RunMins|Minutes)?(PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)
THINGS = {
    "CPU": "CPUs",
    "GRES": "GPUs",
    "MEM": "memory",
    "MEMORY": "memory",
    "NODE": "nodes",
    "BILLING": "billing units",
    "BB": "burst buffer",
    "ENERGY": "energy",
    "LICENSE": "licences",
    "UNKNOWN": "units of another resource",
}
UNCOUNTED = ("memory", "energy", "burst buffer")
SENTENCE = "Nodes required for job are DOWN, DRAINED or reserved"


def reason_of(said: str) -> Reason:
    """Return what a reason means; one that is not known is quoted."""
    said = " ".join(said.split())
    name, _, more = said.partition(", ")
    if name.startswith(SENTENCE) or (name == "Nodes required for job are DOWN"):
        return Reason("all nodes that fit are down, being drained, or kept for other partitions")
    if name == "ReqNodeNotAvail":
        return not_available(more)
    known = REASONS.get(name)
    if known is not None:
        return known
    limit = LIMIT.fullmatch(name)
    if limit is not None:
        return limit_reason(*limit.groups(default=""))
    return Reason(f"Slurm says {said}" if said else "")


def not_available(more: str) -> Reason:
    """Say which nodes are not there, and why, as far as Slurm tells."""
    if "maintenance" in more.lower():
        return Reason(
            "it would run into a maintenance",
            advice="Ask for less time, so that it ends before that: it is resumed afterwards.",
        )
    named = re.fullmatch(r"UnavailableNodes:\s*(.*)", more)
    if named and named[1]:
        return Reason(f"these nodes are down or being drained: {named[1]}")
    return REASONS["ReqNodeNotAvail"]


def limit_reason(whose: str, how: str, what: str, minutes: str, scope: str) -> Reason:
    by = {"QOS": "its QoS", "Assoc": "its account"}.get(whose, "its account")
    if how == "Min":
        thing = THINGS[what.upper()]
        return Reason(
            f"it asks for {'less' if thing in UNCOUNTED else 'fewer'} {thing} than {by} demands",
            never=True,
            advice="Ask for more, or use another QoS.",
        )
    if what.startswith(("Jobs", "SubmitJob")):
        queued = "in the queue" if what.startswith("Submit") else "running"
        if whose == "QOS" and how == "Grp":
            return Reason(f"there are as many jobs {queued} as its QoS allows")
        who = "your group has" if how == "Grp" or scope == "PerAccount" else "you have"
        allows = "your QoS allows" if whose == "QOS" else "its account allows"
        return Reason(f"{who} as many jobs {queued} as {allows}")
    if what.startswith("Wall"):
        if how == "Max":
            words = f"it asks for more time than {by} allows one job"
            return Reason(words, never=True, advice=TIME_ADVICE)
        return Reason(f"the time that {by} has is used up", never=True, advice=ASK_ADVICE)
    return amount_reason(whose == "QOS", THINGS[what.upper()], minutes, scope)


def amount_reason(qos: bool, thing: str, minutes: str, scope: str) -> Reason:
    """Say what is used up, or asked for too much."""
    many = "much" if thing in UNCOUNTED else "many"
    if minutes.startswith("Run"):
        words = f"too much time on {thing} is promised to jobs that run"
        return Reason(words, advice="It starts when they end, or with a shorter --time.")
    if scope in ("PerJob", "PerNode"):
        place = "one job" if scope == "PerJob" else "on one node"
        what = f"hours of {thing}" if minutes else thing
        by = "its QoS" if qos else "its account"
        words = f"it asks for more {what} than {by} allows {place}"
        return Reason(words, never=True, advice="Ask for less.")
    if minutes:
        by = "its QoS" if qos else "your group"
        words = f"{by} has used up its hours of {thing}"
        return Reason(words, never=True, advice="See dray quota; who pays for it can renew it.")
    if scope == "PerUser":
        return Reason(
            f"you use as {many} {thing} as {'your QoS' if qos else 'your account'} allows"
        )
    if qos:
        return Reason(f"its QoS has as {many} {thing} in use as it may")
    return Reason(f"your group uses as {many} {thing} as it may")
