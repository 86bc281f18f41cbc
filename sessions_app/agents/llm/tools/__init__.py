"""Tools for a model: those of MCP servers, which are programs on this machine or servers at an address."""
