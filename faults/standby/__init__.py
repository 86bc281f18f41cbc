"""The drill of the standby: the primary is killed under load, and its standby takes its place."""
