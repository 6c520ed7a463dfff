"""Any ASGI application on AWS Lambda with streamed responses: a loop for the Lambda Runtime API.

The standard library is all it needs, and little of that, for every import is paid at a cold start.
"""
