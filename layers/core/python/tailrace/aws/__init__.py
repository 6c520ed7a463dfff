"""Everything about AWS: clients of its services, what runs in functions, what the edge needs."""
