"""Commands that clients run in a conversation's workspace, beside its agent: one bash each, in a sandbox."""
