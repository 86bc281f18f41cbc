"""Another host's claims, in a process of their own: `python -m tests.support.servers.lone_claims PUBLIC_ID`.

For each line that it reads it claims the loop of a conversation and its deliveries, attaches a client and a
remote agent, and prints whether it got the loop and the delivery.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")

import django

django.setup()

from django.contrib.auth.models import User

from conversations.models import Conversation
from sessions_app.agents.remote import attachments
from sessions_app.live import presence
from sessions_app.loops import leases
from sessions_app.loops.leases import LoopHeld
from sessions_app.models import Connection, Endpoint
from sessions_app.processes import Process
from sessions_app.webhooks import deliveries, gathering

ELSEWHERE = Process("elsewhere", 1, 1.0)
"""A process of another host, of which nothing is certain."""


def main(public_id: str) -> None:
    """Claim all, once for each line."""
    for _ in sys.stdin:
        print(*_claim(public_id), flush=True)


def _claim(public_id: str) -> tuple[str, str]:
    row = Conversation.objects.select_related("owner").get(public_id=public_id)
    user = User.objects.get(pk=row.owner_id)
    presence.record([Connection(id="elsewhere", conversation=row, user=user, door="native")], [])
    presence.touch(["elsewhere"])
    attachments.attach(user.pk, "helper", None, ELSEWHERE)
    return _loop(row), _delivery()


def _loop(row: Conversation) -> str:
    try:
        leases.claim(row.ref, ELSEWHERE, agent="")
    except LoopHeld:
        return "held"
    return "claimed"


def _delivery() -> str:
    for endpoint in Endpoint.objects.all():
        watermark = gathering.Watermark()
        watermark.look()
        gathering.gather(endpoint, watermark)
        if deliveries.claim(endpoint.pk, ELSEWHERE, limit=1):
            return "claimed"
    return "held"


if __name__ == "__main__":
    main(*sys.argv[1:])
