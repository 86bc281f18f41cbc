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
from sessions_app.models import NotedFact, Receiver

SETTLES_S = 10.0
SETTLES_POLL_S = 0.01
WINDOW = 20_000
"""At most this many events are read at once; there are more only after a long pause."""

_WRITERS = """
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relation IN ('conversations_event'::regclass, 'sessions_app_notedfact'::regclass)
"""

_COLUMNS = """
    (receiver_id, conversation_id, through, known, told, known_fact, owes_status, since, due_at,
     tries, last_error, claim, owner_host, owner_pid, owner_started)
"""
_UNTRIED = "0, '', '', '', 0, 0"

# An existing row keeps its cursor. While it waits after a failure, nothing makes its retry earlier.
_EVENTS = f"""
    INSERT INTO sessions_app_delivery AS known_row {_COLUMNS}
    SELECT %(endpoint)s, event.conversation_id, MIN(event.seq) - 1, MAX(event.seq),
           %(fact_position)s, %(fact_position)s, %(no)s, %(now)s,
           CASE WHEN MAX(CASE WHEN event.kind IN ('{Kind.TURN}', '{Kind.STATE}') THEN 1 ELSE 0 END) = 1
                     OR MAX(event.seq) - MIN(event.seq) + 1 >= %(buffer)s
                THEN %(now)s ELSE %(flush_at)s END,
           {_UNTRIED}
    FROM conversations_event AS event {{join}}
    WHERE event.id > %(after)s AND event.id <= %(through)s
    GROUP BY event.conversation_id
    ORDER BY event.conversation_id
    ON CONFLICT (receiver_id, conversation_id) DO UPDATE SET
        known = excluded.known,
        since = CASE WHEN known_row.due_at IS NULL THEN excluded.since ELSE known_row.since END,
        due_at = CASE WHEN known_row.tries > 0 THEN known_row.due_at
                      WHEN excluded.known - known_row.through >= %(buffer)s THEN excluded.since
                      WHEN known_row.due_at < excluded.due_at THEN known_row.due_at
                      ELSE excluded.due_at END
    WHERE excluded.known > known_row.known
"""
_FACTS = f"""
    INSERT INTO sessions_app_delivery AS known_row {_COLUMNS}
    SELECT %(endpoint)s, noted.conversation_id, noted.before_it, noted.before_it,
           %(fact_position)s, noted.newest, %(no)s, %(now)s, %(now)s, {_UNTRIED}
    FROM (
        SELECT fact.conversation_id, MAX(fact.id) AS newest,
               CASE WHEN EXISTS (
                        SELECT 1 FROM sessions_app_delivery AS there
                        WHERE there.receiver_id = %(endpoint)s
                        AND there.conversation_id = fact.conversation_id)
                    THEN -1
                    ELSE COALESCE((
                        SELECT event.seq FROM conversations_event AS event
                        WHERE event.conversation_id = fact.conversation_id AND event.id <= %(begins_after)s
                        ORDER BY event.seq DESC LIMIT 1), -1)
               END AS before_it
        FROM sessions_app_notedfact AS fact {{join}}
        WHERE fact.id > %(fact_position)s AND fact.fact <> %(unheard)s
        GROUP BY fact.conversation_id
    ) AS noted
    WHERE noted.newest > 0
    ORDER BY noted.conversation_id
    ON CONFLICT (receiver_id, conversation_id) DO UPDATE SET
        known_fact = excluded.known_fact,
        since = CASE WHEN known_row.due_at IS NULL THEN excluded.since ELSE known_row.since END,
        due_at = CASE WHEN known_row.tries > 0 THEN known_row.due_at ELSE excluded.due_at END
    WHERE excluded.known_fact > known_row.known_fact
"""
_OF_OWNER = """
    JOIN conversations_conversation AS conversation
    ON conversation.id = {table}.conversation_id AND conversation.owner_id = %(owner)s
"""


class Keys(NamedTuple):
    """The ends of the events and the recorded changes."""

    event: int
    fact: int


class Watermark(KeyHorizon[Keys]):
    """The watermark: a row with a key up to it that does not exist now never will."""

    def __init__(self) -> None:
        super().__init__(Keys, guards.EVENT, NotedFact._meta.db_table)


def settled_now() -> Keys:
    """Return the ends of events and changes as a watermark, a moment after they were read.

    Raise ConversationBusy if another transaction writes for longer than SETTLES_S.
    """
    watermark = Watermark()
    watermark.look()
    if connection.vendor == "postgresql":
        # Who has been given a key holds the table's lock until the key is settled; who comes later is given
        # a higher one. Nobody is kept from writing, so no two can wait for each other.
        _wait_for(_writers())
    return watermark.newest


def _wait_for(writers: set[str]) -> None:
    deadline = time.monotonic() + SETTLES_S
    while writers and (writers := writers & _writers()):
        if time.monotonic() > deadline:
            raise ConversationBusy("Somebody writes for too long: try again.")
        time.sleep(SETTLES_POLL_S)


def _writers() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS)
        return {transaction for (transaction,) in cursor.fetchall()}


def gather(endpoint: Receiver, watermark: Watermark) -> bool:
    """Record what is new in the endpoint's deliveries; say whether there is more to read."""
    if watermark.newest.event <= endpoint.event_position and watermark.newest.fact <= endpoint.fact_position:
        return False
    with transaction.atomic():
        rows = Receiver.objects.select_for_update(no_key=True).filter(pk=endpoint.pk)
        row = rows.timed().first()
        if row is None:
            return False
        through = _end_of_window(row.event_position, watermark.newest.event)
        is_all = through >= watermark.newest.event
        values = _values(row, row.read_at, through=through)
        with connection.cursor() as cursor:
            cursor.execute(_EVENTS.format(join=_join(row, "event")), values)
            if is_all:  # a fact waits for the events before it to be known
                cursor.execute(_FACTS.format(join=_join(row, "fact")), values)
        event_position = max(row.event_position, min(through, watermark.settled.event))
        fact_position = max(row.fact_position, watermark.settled.fact if is_all else 0)
        moved = (event_position, fact_position) != (row.event_position, row.fact_position)
        if moved:
            Receiver.objects.filter(pk=row.pk).update(
                event_position=event_position, fact_position=fact_position
            )
    endpoint.event_position, endpoint.fact_position = event_position, fact_position
    return not is_all and moved


def _end_of_window(after: int, newest: int) -> int:
    """Return the key of the last of the next WINDOW events; there may be gaps between keys."""
    if newest <= after + WINDOW:
        return newest
    keys = Event.objects.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)
    return next(iter(keys[WINDOW - 1 : WINDOW]), newest)


def _join(endpoint: Receiver, table: str) -> str:
    return "" if endpoint.owner_id is None else _OF_OWNER.format(table=table)


def _values(endpoint: Receiver, now: datetime, *, through: int) -> dict[str, Any]:
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
        "fact_position": endpoint.fact_position,
        "after": endpoint.event_position,
        "through": through,
    }
