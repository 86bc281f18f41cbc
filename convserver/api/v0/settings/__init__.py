"""Settings, secrets and the choices of forms at the V0 door."""
