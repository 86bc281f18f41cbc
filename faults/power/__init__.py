"""Power cuts: servers whose files stand on a disk that forgets what was not synced.

`disk` is the disk as a model, `mount` shows it as a filesystem (FUSE), and `installations` lets the servers
of the suite keep their data there.
"""
