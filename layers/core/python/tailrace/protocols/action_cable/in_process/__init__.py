"""Action Cable in one process: sockets, rooms and followers."""
