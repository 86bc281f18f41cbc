"""What is new for an endpoint: found by the keys of events and changes, always with the same few statements.

Keys are assigned before a transaction commits, so a lower one may become visible after a higher one. A
position moves only up to the watermark; rows above it are read again, which changes nothing.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection, transaction

from conversations.engines import guards
from conversations.engines.watermark import KeyHorizon
from conversations.events import Kind
from conversations.exceptions import ConversationBusy
from conversations.models import Event
from sessions_app.models import Endpoint, RecordedChange

SETTLES_S = 10.0
# There are more events only after a long pause of the dispatcher; one statement must not read them all.
WINDOW = 20_000

_WRITERS = """
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation IN ('conversations_event'::regclass, 'sessions_app_recordedchange'::regclass)
"""

_COLUMNS = """
    (endpoint_id, conversation_id, through, known, through_change, known_change, owes_status, since, due_at,
     tries, last_error, claim, owner_host, owner_pid, owner_started)
"""
_UNTRIED = "0, '', '', '', 0, 0"

# An existing row keeps its cursor. While it waits after a failure, nothing makes its retry earlier.
_EVENTS = f"""
    INSERT INTO sessions_app_delivery AS known_row {_COLUMNS}
    SELECT %(endpoint)s, event.conversation_id, MIN(event.seq) - 1, MAX(event.seq),
           %(change_position)s, %(change_position)s, %(no)s, %(now)s,
           CASE WHEN MAX(CASE WHEN event.kind IN ('{Kind.TURN}', '{Kind.STATE}') THEN 1 ELSE 0 END) = 1
                     OR MAX(event.seq) - MIN(event.seq) + 1 >= %(buffer)s
                THEN %(now)s ELSE %(flush_at)s END,
           {_UNTRIED}
    FROM conversations_event AS event {{join}}
    WHERE event.id > %(after)s AND event.id <= %(through)s
    GROUP BY event.conversation_id
    ORDER BY event.conversation_id
    ON CONFLICT (endpoint_id, conversation_id) DO UPDATE SET
        known = excluded.known,
        since = CASE WHEN known_row.due_at IS NULL THEN excluded.since ELSE known_row.since END,
        due_at = CASE WHEN known_row.tries > 0 THEN known_row.due_at
                      WHEN excluded.known - known_row.through >= %(buffer)s THEN excluded.since
                      WHEN known_row.due_at < excluded.due_at THEN known_row.due_at
                      ELSE excluded.due_at END
    WHERE excluded.known > known_row.known
"""
_CHANGES = f"""
    INSERT INTO sessions_app_delivery AS known_row {_COLUMNS}
    SELECT %(endpoint)s, recorded.conversation_id, recorded.before_it, recorded.before_it,
           %(change_position)s, recorded.newest, %(no)s, %(now)s, %(now)s, {_UNTRIED}
    FROM (
        SELECT change.conversation_id, MAX(change.id) AS newest,
               CASE WHEN EXISTS (
                        SELECT 1 FROM sessions_app_delivery AS there
                        WHERE there.endpoint_id = %(endpoint)s
                        AND there.conversation_id = change.conversation_id)
                    THEN -1
                    ELSE COALESCE((
                        SELECT event.seq FROM conversations_event AS event
                        WHERE event.conversation_id = change.conversation_id AND event.id <= %(begins_after)s
                        ORDER BY event.seq DESC LIMIT 1), -1)
               END AS before_it
        FROM sessions_app_recordedchange AS change {{join}}
        WHERE change.id > %(change_position)s AND change.kind <> %(unheard)s
        GROUP BY change.conversation_id
    ) AS recorded
    WHERE recorded.newest > 0
    ORDER BY recorded.conversation_id
    ON CONFLICT (endpoint_id, conversation_id) DO UPDATE SET
        known_change = excluded.known_change,
        since = CASE WHEN known_row.due_at IS NULL THEN excluded.since ELSE known_row.since END,
        due_at = CASE WHEN known_row.tries > 0 THEN known_row.due_at ELSE excluded.due_at END
    WHERE excluded.known_change > known_row.known_change
"""
# No endpoint hears of a temporary conversation: what it is sent, it may remember.
_PERMANENT = """
    JOIN conversations_conversation AS conversation
    ON conversation.id = {table}.conversation_id AND conversation.expires_at IS NULL
"""
_OF_OWNER = " AND conversation.owner_id = %(owner)s"


class Keys(NamedTuple):
    """The greatest keys of the events and of the recorded changes."""

    event: int
    change: int


class Watermark(KeyHorizon[Keys]):
    """The watermark: a missing row with a key up to it will never appear."""

    def __init__(self) -> None:
        super().__init__(Keys, guards.EVENT, RecordedChange._meta.db_table)


def settled_now() -> Keys:
    """Return the ends of events and changes as a watermark, a moment after they were read.

    Raise ConversationBusy if another transaction writes for longer than SETTLES_S.
    """
    watermark = Watermark()
    watermark.look()
    settles_poll_s = 0.01
    if connection.vendor == "postgresql":
        # A writer with a key holds the table's lock until the key is settled; later writers get higher
        # keys. No writer is blocked, so no deadlock is possible.
        writers = _writers()
        deadline = time.monotonic() + SETTLES_S
        while writers and (writers := writers & _writers()):
            if time.monotonic() > deadline:
                raise ConversationBusy("Another process writes for too long: try again.")
            time.sleep(settles_poll_s)
    return watermark.newest


def _writers() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS)
        return {transaction for (transaction,) in cursor.fetchall()}


def gather(endpoint: Endpoint, watermark: Watermark) -> bool:
    """Record what is new in the endpoint's deliveries; return whether there is more to read."""
    newest = watermark.newest
    if newest.event <= endpoint.event_position and newest.change <= endpoint.change_position:
        return False
    with transaction.atomic():
        rows = Endpoint.objects.select_for_update(no_key=True).filter(pk=endpoint.pk)
        row = rows.timed().first()
        if row is None:
            return False
        through = _end_of_window(row.event_position, newest.event)
        is_all = through >= newest.event
        values = _values(row, row.read_at, through=through)
        with connection.cursor() as cursor:
            cursor.execute(_EVENTS.format(join=_join(row, "event")), values)
            if is_all:  # a change waits for the events before it to be known
                cursor.execute(_CHANGES.format(join=_join(row, "change")), values)
        event_position = max(row.event_position, min(through, watermark.settled.event))
        change_position = max(row.change_position, watermark.settled.change if is_all else 0)
        moved = (event_position, change_position) != (row.event_position, row.change_position)
        if moved:
            Endpoint.objects.filter(pk=row.pk).update(
                event_position=event_position, change_position=change_position
            )
    endpoint.event_position, endpoint.change_position = event_position, change_position
    return not is_all and moved


def _end_of_window(after: int, newest: int) -> int:
    """Return the key of the last of the next WINDOW events; there may be gaps between keys."""
    if newest <= after + WINDOW:
        return newest
    keys = Event.objects.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)
    return next(iter(keys[WINDOW - 1 : WINDOW]), newest)


def _join(endpoint: Endpoint, table: str) -> str:
    return _PERMANENT.format(table=table) + ("" if endpoint.owner_id is None else _OF_OWNER)


def _values(endpoint: Endpoint, now: datetime, *, through: int) -> dict[str, Any]:
    moment = connection.ops.adapt_datetimefield_value
    return {
        "endpoint": endpoint.pk,
        "owner": endpoint.owner_id,
        "no": False,
        "unheard": next(iter(endpoint.unheard_domain_events), ""),
        "now": moment(now),
        "flush_at": moment(now + timedelta(seconds=endpoint.flush_delay_s)),
        "buffer": endpoint.event_buffer_size,
        "begins_after": endpoint.begins_after,
        "change_position": endpoint.change_position,
        "after": endpoint.event_position,
        "through": through,
    }
