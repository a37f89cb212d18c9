"""What an update says, exactly: records from gradients without a search, and how much any attack can learn.

* `bounds`: the greatest chance of success of any attack against a private update.
"""

from reticent.audit.leakage.bounds import success_under_epsilon, success_under_exchange, success_under_mu

__all__ = ["success_under_epsilon", "success_under_exchange", "success_under_mu"]
