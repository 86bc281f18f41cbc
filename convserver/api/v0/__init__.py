"""The V0 door by REST: spec V0 §1, one file per resource."""
