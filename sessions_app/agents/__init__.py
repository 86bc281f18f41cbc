"""The agent protocol, and the agents that come with the server.

`sources` has the names of all agents, `registry` their classes, and `chosen` the agent of a conversation.
"""
