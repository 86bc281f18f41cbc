"""The parts of the manager: how it steers, and how its rounds go on after a failure."""
