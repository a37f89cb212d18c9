"""Content by its hash: whoever has the identifier needs to trust no store.

`cid` is the identifier, `unixfs` how a file becomes blocks, `base` what every store is; `directory`,
`gateway` and `kubo` are stores, `server` lets others read and write one. `tensors` is the form of models.
Content is public: what must not be read by all is encrypted before it comes here.
"""

from reticent.store.base import Store
from reticent.store.cid import Cid
from reticent.store.directory import Directory
from reticent.store.gateway import Gateway
from reticent.store.kubo import Kubo
from reticent.store.places import at
from reticent.store.unixfs import cid_of

__all__ = ["Cid", "Directory", "Gateway", "Kubo", "Store", "at", "cid_of"]
