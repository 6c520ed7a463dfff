"""Action Cable: WebSocket clients of Rails, Hotwire and AnyCable on the same log.

Everything directly in here is without I/O: what clients say becomes effects (`session`), and what
is in the log becomes frames (`frames`, `contents`). `cable.local` carries effects out in a server.
"""
