"""The agreement between CloudFront and the functions: origin secret, edge tokens, keys."""
