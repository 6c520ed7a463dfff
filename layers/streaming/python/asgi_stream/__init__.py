"""Serves any ASGI application on AWS Lambda with streamed responses, by the Lambda Runtime API.

It imports little, and only from the standard library, since every import slows down cold starts.
"""
