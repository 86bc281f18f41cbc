"""What tests stand on: how they run, and the servers, wires, people and data that they use."""
