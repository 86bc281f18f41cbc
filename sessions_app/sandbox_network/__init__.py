"""The network of a sandbox: a proxy that runs outside, and reaches public addresses only."""
