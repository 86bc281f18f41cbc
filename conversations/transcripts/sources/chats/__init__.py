"""The data exports of chat services: one huge file of conversations."""
