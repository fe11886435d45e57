"""Recovery by hand: rewinding, going on without lost data, retrying dead rows."""
