"""The commands, except `serve`."""
