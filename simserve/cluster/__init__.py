"""The fleet: clients send requests, a router picks the replica, which admits or rejects them."""
