"""The wires of providers: each creates its library's model. Imported by `library` at the first use."""
