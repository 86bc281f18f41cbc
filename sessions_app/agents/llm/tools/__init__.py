"""Tools for a model: those of MCP servers, which are local programs or servers at an address."""
