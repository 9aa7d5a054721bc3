"""As root, mounts of this process's own, which end with it: every process that runs tests imports this.

A disk is written out and let go of when its last mount goes. Somebody who copies everybody's mounts (`unshare -m`)
would hold the disks of tests beyond their `umount`; and those of other tests would come and go in folders that a run
tracks. What is mounted here is copied by children of this process alone.
"""

from __future__ import annotations

import ctypes
import os

_CLONE_NEWNS, _MS_REC, _MS_SLAVE = 0x20000, 0x4000, 1 << 19

BEFORE = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)      # those of whoever started it
_libc = ctypes.CDLL(None, use_errno=True)
IS_ALONE = os.geteuid() == 0 and _libc.unshare(_CLONE_NEWNS) == 0      # a container may forbid it
# what others unmount goes here too; what is mounted here is nowhere else
if IS_ALONE and _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None) != 0:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "/")
