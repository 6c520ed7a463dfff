"""The rules of subscriptions: configurations, globs, links and wakes; no I/O, no clock."""
