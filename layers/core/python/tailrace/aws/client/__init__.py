"""Clients of AWS services: endpoints, credentials, signatures, connections and calls."""
