"""Authorization: the credentials of a request, whether they are valid, and what they permit."""
