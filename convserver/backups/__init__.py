"""Backups: a whole store in a directory, and the way back.

All that users said and gave is in the database: events, attachments and uploaded files are rows. So one
snapshot of it is consistent by itself: an attachment that a row names is a row of the same snapshot, whatever
is deleted meanwhile. Nothing has to be taken first or last. Only the secret key is a file, and it never
changes while a server runs.
"""
