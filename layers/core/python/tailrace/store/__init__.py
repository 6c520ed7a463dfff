"""Where the log is kept. A store fills slots and reads them; it never knows the rules."""
