"""Renames finished files into place in one step, without ever replacing something else."""

import ctypes
import errno
import os
from contextlib import suppress
from typing import Final

_NOREPLACE: Final = 1
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
_libc: Final = ctypes.CDLL(None, use_errno=True)


def sync(descriptor: int) -> None:
    """Bring everything that was written to this file system to its disk."""
    if _libc.syncfs(descriptor) != 0:
        raise _error()


def put_new(name: str, target: str, *, staging: int, directory: int) -> None:
    """Move a staged file to a free place; FileExistsError if it is taken by now."""
    if _rename_new(name, target, staging, directory):
        return
    if is_directory(name, staging):
        # Without help of the kernel, a rename would take the place of an empty directory, and of nothing else.
        if _exists(target, directory):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(name, target, src_dir_fd=staging, dst_dir_fd=directory)
        return
    os.link(name, target, src_dir_fd=staging, dst_dir_fd=directory, follow_symlinks=False)
    os.unlink(name, dir_fd=staging)


def put_over(name: str, target: str, *, staging: int, directory: int) -> None:
    """Move a staged file over an existing one: processes that have that open keep it."""
    os.rename(name, target, src_dir_fd=staging, dst_dir_fd=directory)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=staging)  # two names of one file are left alone by rename


def is_directory(name: str, directory: int) -> bool:
    """Whether a name is a directory itself, not a link to one."""
    try:
        os.close(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory))
    except OSError:
        return False
    return True


def _rename_new(name: str, target: str, staging: int, directory: int) -> bool:
    """Rename, if the file system can refuse to replace; False if it cannot."""
    if _libc.renameat2(staging, os.fsencode(name), directory, os.fsencode(target), _NOREPLACE) == 0:
        return True
    error = _error()
    if error.errno in _UNSUPPORTED:
        return False
    raise error


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
