"""Payloads as JSON text: their bounds and their parts, without decoding them."""
