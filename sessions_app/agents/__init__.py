"""The agent protocol, and the agents that come with the server: `auto`, `demo` and `llm`.

`CONVSERVER_AGENT` names one: a name of `BUILT_IN_AGENTS` (convserver/configuration.py) or a dotted path.
"""
