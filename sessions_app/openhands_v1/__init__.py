"""The parts that only the V1 wire has: starts, sandboxes, states, steering, imports, archives."""
