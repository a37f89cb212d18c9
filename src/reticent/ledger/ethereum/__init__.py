"""The ledger in a contract on an Ethereum chain, and anchors of the SQL ledger's heads there."""

__all__: list[str] = []
