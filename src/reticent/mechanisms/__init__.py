"""Mechanisms: what turns private data into something safe to publish."""
