"""An ERC-20 token of tests: whoever asks is given some."""

from functools import cache

from reticent.chain.compile import compiled

from .revm import Artifact

TOKEN = """
# pragma version 0.4.3
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])

@external
def mint(to: address, amount: uint256):
    self.balanceOf[to] += amount

@external
def approve(spender: address, amount: uint256) -> bool:
    self.allowance[msg.sender][spender] = amount
    return True

@external
def transfer(to: address, amount: uint256) -> bool:
    self.balanceOf[msg.sender] -= amount
    self.balanceOf[to] += amount
    return True

@external
def transferFrom(owner: address, to: address, amount: uint256) -> bool:
    self.allowance[owner][msg.sender] -= amount
    self.balanceOf[owner] -= amount
    self.balanceOf[to] += amount
    return True
"""


@cache
def token_artifact():
    return Artifact(compiled("Token", TOKEN))
