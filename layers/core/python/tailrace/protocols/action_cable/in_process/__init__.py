"""Action Cable for the connections of this process: WebSockets and server-sent events."""
