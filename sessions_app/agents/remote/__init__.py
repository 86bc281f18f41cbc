"""Agents that are programs outside the server: attached over the native socket, they play turns by frames.

`programs` has those that are attached to this process, `attachments` their rows, which all processes see.
`listing` has them as people choose them.
`agent` plays a turn by one of them, and `remote_turn` carries out its `steps`, each once.
"""
