"""Subscriptions: durable cursors over streams that wake webhooks and workers when there is news."""
