"""Is the cluster's DNS: dns.py ADDRESS SERVER CA CERTIFICATE KEY.

It answers with the addresses of services, of headless ones and of their pods, and knows nothing
else: what a training across nodes looks up, not what a cluster could.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import threading
import time
import traceback
import urllib.request
from typing import Any

ZONE = ".svc.cluster.local"
NO_SUCH_NAME = 3
ADDRESS, ANY = 1, 255  # what is asked for

Objects = dict[tuple[str, str], dict[str, Any]]


class Watch:
    """All objects of one kind, as they are now."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self.url = url
        self.context = context
        self.objects: Objects = {}
        threading.Thread(target=self._follow_for_ever, daemon=True).start()

    def _follow_for_ever(self) -> None:
        while True:
            try:
                self._follow()
            except (OSError, ValueError):
                traceback.print_exc()  # an API server that is restarted says so
                time.sleep(0.2)

    def _follow(self) -> None:
        with urllib.request.urlopen(self.url, context=self.context, timeout=10) as answer:
            listed = json.load(answer)
        self.objects = {name_of(one): one for one in listed["items"]}
        url = f"{self.url}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        with urllib.request.urlopen(url, context=self.context, timeout=600) as events:
            for line in events:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                changed = dict(self.objects)
                changed.pop(name_of(event["object"]), None)
                if event["type"] != "DELETED":
                    changed[name_of(event["object"])] = event["object"]
                self.objects = changed


def name_of(found: dict[str, Any]) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def look_up(name: str, services: Objects, slices: Objects) -> list[str]:
    """Find the addresses of SERVICE.NAMESPACE or POD.SERVICE.NAMESPACE, below the zone."""
    name = name.lower().rstrip(".")
    parts = name.removesuffix(ZONE).split(".")
    if not name.endswith(ZONE) or len(parts) not in (2, 3):
        return []
    host, (service, namespace) = parts[:-2], parts[-2:]
    found = services.get((namespace, service))
    if found is None:
        return []
    address = found["spec"].get("clusterIP")
    if address not in (None, "", "None"):
        return [] if host else [address]
    unready = found["spec"].get("publishNotReadyAddresses", False)
    return [
        address
        for (where, _), one in slices.items()
        if where == namespace
        and one["metadata"].get("labels", {}).get("kubernetes.io/service-name") == service
        for end in one.get("endpoints") or []
        if (unready or end.get("conditions", {}).get("ready", True))
        and (not host or [end.get("hostname")] == host)
        for address in end["addresses"]
    ]


def answer(query: bytes, services: Objects, slices: Objects) -> bytes:
    at, labels = 12, []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += length + 1
    (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
    found = look_up(".".join(labels), services, slices)
    flags = 0x8580 | (0 if found else NO_SUCH_NAME)
    given = found if kind in (ADDRESS, ANY) else []
    records = [
        b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(one) for one in given
    ]
    head = query[:2] + struct.pack("!HHHHH", flags, 1, len(given), 0, 0)
    return head + query[12 : at + 5] + b"".join(records)


def main(address: str, server: str, authority: str, certificate: str, key: str) -> None:
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    services = Watch(f"{server}/api/v1/services", context)
    slices = Watch(f"{server}/apis/discovery.k8s.io/v1/endpointslices", context)
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((address, 53))
    while True:
        query, asker = listener.recvfrom(4096)
        try:
            listener.sendto(answer(query, services.objects, slices.objects), asker)
        except (IndexError, ValueError, struct.error):
            traceback.print_exc()


if __name__ == "__main__":
    main(*sys.argv[1:])
