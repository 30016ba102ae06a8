"""Forked processes, in which JAX hangs: its threads stay in the parent, and the child waits for them."""

import os

_users: set[int] = set()


def refuse_fork() -> None:
    """Note that this process uses JAX. Refuse if it was forked from one that did."""
    if _users and os.getpid() not in _users:
        raise RuntimeError(
            "This process was forked from one that had used JAX, whose threads do not survive a fork: it "
            "would hang. Start processes with multiprocessing.get_context('spawn') or with joblib, or use "
            "novidgp only after the fork: load the model in the child."
        )
    _users.add(os.getpid())
