"""The agent that answers with a language model.

`library` imports the model library at its first use, in a thread. Nothing else imports the modules that have
it at their top: `requests`, `history`, `failures`, `transport` and those of `wires`.
"""
