"""The user's messages to an agent: their effect while it works, and their receipts."""
