"""Agents that are programs outside the server: they attach over the native socket, and play turns by frames.

`programs` has the programs of this process, `attachments` their rows, which all processes see. `agent` plays
a turn by one of them, and `remote_turn` carries out its `steps`, each once.
"""
