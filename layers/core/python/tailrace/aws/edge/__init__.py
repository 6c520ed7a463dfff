"""What CloudFront and the functions behind it agree on: origin secret, edge tokens, keys."""
