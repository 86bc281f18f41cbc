"""What operators watch: heartbeats of processes, who holds a lock, and figures with what is wrong in them.

Procrastinate has a table of its workers with heartbeats, too. It names neither host nor process, and servers
are not in it, so every process has a row of its own here.
"""
