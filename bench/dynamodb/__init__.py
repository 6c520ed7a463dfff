"""What the DynamoDB store asks of DynamoDB, and what that costs (`python -m bench.dynamodb`)."""
