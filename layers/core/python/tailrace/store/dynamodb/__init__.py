"""The production store: the slot chain on one DynamoDB table and one S3 bucket."""
