"""What a filled database occupies, by table and index."""

from __future__ import annotations

from benchmarks.databases import PostgreSQL
from benchmarks.scale.search_index import TABLE as SEARCH

_TABLES = ("conversations_event", SEARCH)
_SIZES = """
    SELECT c.relname, pg_relation_size(c.oid) + pg_relation_size(c.oid, 'fsm') + pg_relation_size(c.oid, 'vm')
    FROM pg_class AS c WHERE c.oid = '{table}'::regclass
    UNION ALL
    SELECT c.relname || ', TOAST', pg_total_relation_size(c.reltoastrelid)
    FROM pg_class AS c WHERE c.oid = '{table}'::regclass AND c.reltoastrelid <> 0
    UNION ALL
    SELECT i.relname, pg_relation_size(i.oid)
    FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid WHERE x.indrelid = '{table}'::regclass
"""


def sizes(database: PostgreSQL) -> dict[str, int]:
    """Return the bytes of each table, its TOAST and its indexes, and of the whole database."""
    found = {
        name: int(size) for table in _TABLES for name, size in database.execute(_SIZES.format(table=table))
    }
    ((conversations,),) = database.execute("SELECT pg_total_relation_size('conversations_conversation')")
    ((whole,),) = database.execute("SELECT pg_database_size(current_database())")
    return {
        **found,
        "conversations_conversation, with its indexes": int(conversations),
        "database": int(whole),
    }


def counts(database: PostgreSQL) -> dict[str, int]:
    """Return how many events and conversations there are, and the mean bytes of a payload and of its text."""
    ((events, payload, text),) = database.execute(
        "SELECT COUNT(*), AVG(size)::bigint, AVG(octet_length(text))::bigint FROM conversations_event "
        "WHERE id <= 200000"
    )
    ((events,),) = database.execute("SELECT COUNT(*) FROM conversations_event")
    ((conversations,),) = database.execute("SELECT COUNT(*) FROM conversations_conversation")
    return {
        "events": int(events),
        "conversations": int(conversations),
        "mean bytes of a payload": int(payload),
        "mean bytes of its text": int(text),
    }
