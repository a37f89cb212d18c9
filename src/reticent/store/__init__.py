"""Content by its hash: a reader with the identifier needs to trust no store.

`cid` is the identifier, `unixfs` cuts a file into blocks, `base` is the base of every store; `directory`,
`gateway` and `kubo` are stores, `server` lets others read and write one. `tensors` is the form of models.
Content is public: encrypt private content before you put it here.
"""

from reticent.store.base import Store
from reticent.store.cid import Cid
from reticent.store.directory import Directory
from reticent.store.gateway import Gateway
from reticent.store.kubo import Kubo
from reticent.store.places import at
from reticent.store.unixfs import cid_of

__all__ = ["Cid", "Directory", "Gateway", "Kubo", "Store", "at", "cid_of"]
