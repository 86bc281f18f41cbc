"""The agent that answers with a language model.

`library` imports the model library on first use, in a thread. The modules that import it at their top
(`requests`, `history`, `failures`, `transport` and those of `wires`) are imported by nothing else.
"""
