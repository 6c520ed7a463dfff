"""The client commands, a module for each kind."""
