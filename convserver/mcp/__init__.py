"""The MCP door: search and read conversations, for any program that speaks the Model Context Protocol."""
