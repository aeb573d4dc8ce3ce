"""Many trials over Ray: planned, run, settled, recorded. Only this room knows Ray."""
