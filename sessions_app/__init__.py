"""The live half of convserver: sockets, agent loops, and who is asking."""
