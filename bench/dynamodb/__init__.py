"""Calls and units of the DynamoDB store, and their cost (`python -m bench.dynamodb`)."""
