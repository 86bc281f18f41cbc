"""What operators watch: heartbeats of processes, holders of locks, and figures with their problems.

Procrastinate has a table of its workers with heartbeats, too. It names neither host nor process, and has
no servers, so every process has a row of its own here.
"""
