"""Files back to an index for a resumed job: its processes are new, and keep the descriptors that they have.

The same walk as a restore inside the program (rollback.back), with two differences: nobody's descriptors are put back,
and files that no process of this run has opened take part too (files_beside.py).
"""

from __future__ import annotations

from metamori.errors import NoSuchCheckpoint
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.rollback.files_beside import adopt
from metamori.runtime.rollback.rollback import back, go_on, held


def files_back(session: Session, index: int) -> None:
    """Files and names of all of the run's processes to `index`. NoSuchCheckpoint, NotAtRest."""
    store = session.store
    store.refresh()
    if index <= 0 or index not in store.history:
        raise NoSuchCheckpoint(f"there is no checkpoint {index}")
    if session.single:
        store.require_restorable(index)
    with held(session):
        store.require(index)               # a prune that was completed now may have taken it away
        adopt(session, index)
        back(session, index, reopened=False)
    go_on(session)
