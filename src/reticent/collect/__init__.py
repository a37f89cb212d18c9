"""Private reports from a fleet: surveys, devices, the bytes between, and the collector.

What runs on a device (`survey`, `instruments`, `lots`, `wire`, `device`) loads numpy, cryptography and the
device ledger, and solves nothing.
"""
