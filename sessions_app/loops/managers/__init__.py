"""The parts of the manager: what it knows, how it steers, and how its rounds go on after a failure."""
