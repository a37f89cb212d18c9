"""Crowdsourced training that nobody has to trust: a contract, a lottery of miners, reputations and pay.

`lottery` draws committees, `contracts` has the contract, `terms` what a task is posted with, `contract` what
Python sees of it, `history` what its events add up to, `committees` the chances that one is captured or
stalled, `plan` what a task costs. `task_text` is what a task says and `modes` how its homes train, `updates`
how an update travels, `rounds` how a round is judged. `following`, `deciding`, `calls` and `running` are what
the programs share, `customer` and `miner` the programs.
"""

__all__: list[str] = []
