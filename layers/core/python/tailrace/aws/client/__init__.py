"""Clients of AWS services: endpoint, credentials, signatures, connections and calls."""
