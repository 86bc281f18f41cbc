"""The live half of convserver: sockets, agent loops, authentication."""
