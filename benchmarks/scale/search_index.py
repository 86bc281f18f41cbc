"""The search index of a filled database, made by the database itself: the server's indexer would take hours.

A row has the words of the recorded event, two more that hardly any other event has, as names and numbers are
in real logs, and the facets (`conversations/search/fulltext/index.py`). The index of the words is built when
all rows are there.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from benchmarks.databases import PostgreSQL
from benchmarks.scale.filling import AT_ONCE, EVENTS, NAME, POOL

TABLE = "conversations_searchtext"
STEP = 500_000
_FACET = "\ue000"
_HEX = "encode(convert_to({}, 'UTF8'), 'hex')"
_FILLING = f"""
    INSERT INTO {TABLE} (event_id, words)
    SELECT e.id, array_to_tsvector(pool.words || ARRAY[
        substr(md5(e.id::text), 1, 5), substr(md5(e.event_id), 1, 8),
        '{_FACET}o' || c.owner_id, '{_FACET}c' || c.id,
        '{_FACET}k' || {_HEX.format("e.kind")}, '{_FACET}s' || {_HEX.format("e.source")},
        '{_FACET}b13x' || (e.id >> 13), '{_FACET}b17x' || (e.id >> 17), '{_FACET}b21x' || (e.id >> 21)
    ])
    FROM conversations_event AS e
    JOIN conversations_conversation AS c ON c.id = e.conversation_id AND c.public_id LIKE '{NAME}-%%'
    JOIN {POOL} AS pool
        ON pool.seq = (e.seq + 37 * ((c.id - %(pk)s) %% {AT_ONCE})) %% (SELECT COUNT(*) FROM {POOL})
    WHERE e.id > %(after)s AND e.id <= %(after)s + {STEP} AND e.seq < {EVENTS} AND pool.words <> '{{}}'
""".encode()


def fill(database: PostgreSQL, say: Callable[[str], None]) -> None:
    """Fill the index, unless it is filled."""
    if database.execute(f"SELECT 1 FROM {TABLE} LIMIT 1"):
        say(f"{database.name}: the search index is filled already")
        return
    ((definition,),) = database.execute(f"SELECT indexdef FROM pg_indexes WHERE indexname = '{TABLE}_words'")
    ((last,),) = database.execute("SELECT MAX(id) FROM conversations_event")
    first_pk = database.pk_of(f"{NAME}-0")
    database.execute(f"DROP INDEX {TABLE}_words", "SELECT 1")
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("SET work_mem = '128MB'")
        for after in range(0, last, STEP):
            connection.execute(_FILLING, {"pk": first_pk, "after": after})
            say(f"{database.name}: words of {min(after + STEP, last):,} events")
        connection.execute(definition.encode())
        connection.execute(f"VACUUM (ANALYZE) {TABLE}")
