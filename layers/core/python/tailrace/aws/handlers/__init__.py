"""The handlers of Lambda functions, one module per kind of event."""
