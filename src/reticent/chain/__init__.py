"""Access to any Ethereum chain through a JSON-RPC node: keys, transactions, confirmations, contracts.

Nothing here knows what a contract is for. The modules import web3's parts, which are slow to load: import
them where they are used.
"""

__all__: list[str] = []
