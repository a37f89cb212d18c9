"""The ledger of a device: one small file, its bytes, and marks that notice a file older than what left."""

__all__: list[str] = []
