"""What FederatedTask.vy should do, by `crowd.replay`: what checks chains is held against the contract."""

from reticent.federated.crowd import replay
from reticent.federated.crowd.replay import VOID as VOID

from .crowd import CHAIN, UNIT
from .revm import Refused


class Model(replay.Replay):
    """`call` answers as the contract must: what it returns, and its events."""

    def __init__(self, crowd, version=None):
        super().__init__(CHAIN, crowd.address, UNIT, crowd.blockhash, version or crowd.read("version"))

    def call(self, *given, **how):
        try:
            return super().call(*given, **how)
        except replay.Refused as refusal:
            raise Refused(f"crowd: {refusal}" if str(refusal) else "") from refusal
