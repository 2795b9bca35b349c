"""The system calls that a sandboxed program is refused, as a filter for the kernel.

libseccomp (the Debian package libseccomp2) knows the numbers on each machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from functools import lru_cache

from podium.core.errors import FailedPreconditionError

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NOT_EQUAL = 1
_UNKNOWN_CALL = -1

# Memory that no resource limit counts: it stays when nothing maps it any more.
_UNCOUNTED_MEMORY = "shmget shmat msgget msgsnd semget memfd_create memfd_secret mq_open"
# Keys of the process that started the sandbox are inherited.
_KEYS = "add_key request_key keyctl"
_OTHER_PROCESSES = "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise"
_MOUNTS_AND_NAMESPACES = (
    "mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick "
    "mount_setattr unshare setns name_to_handle_at open_by_handle_at"
)
# Wide and young parts of the kernel, where most ways out of a sandbox were found.
_KERNEL_SURFACE = "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register"

REFUSED = " ".join(
    (_UNCOUNTED_MEMORY, _KEYS, _OTHER_PROCESSES, _MOUNTS_AND_NAMESPACES, _KERNEL_SURFACE)
).split()


class _Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


@lru_cache(maxsize=1)
def compiled_filter() -> bytes:
    """The filter as the kernel's instructions.

    Refused calls fail with EPERM. Of sockets only those between processes of
    the sandbox are left: some families, such as AF_VSOCK, leave a network
    namespace as if it were not there.

    Raises:
        FailedPreconditionError: libseccomp is missing or too old.
    """
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        raise FailedPreconditionError(
            "the sandbox needs libseccomp.so.2 (Debian package libseccomp2)",
            reason="SANDBOX_UNAVAILABLE",
        ) from error
    library.seccomp_init.restype = ctypes.c_void_p
    refuse = ctypes.c_uint32(_ERRNO | errno.EPERM)
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))
    output = os.memfd_create("podium-seccomp")
    try:
        for name in REFUSED:
            number = library.seccomp_syscall_resolve_name(name.encode())
            # An older libseccomp does not know the newest calls, nor does its kernel need to.
            if number != _UNKNOWN_CALL:
                _check(library.seccomp_rule_add_array(context, refuse, number, 0, None), name)
        local_only = _Comparison(0, _NOT_EQUAL, socket.AF_UNIX, 0)
        number = library.seccomp_syscall_resolve_name(b"socket")
        _check(
            library.seccomp_rule_add_array(context, refuse, number, 1, ctypes.byref(local_only)),
            "socket",
        )
        _check(library.seccomp_export_bpf(context, output), "export")
        return os.pread(output, os.fstat(output).st_size, 0)
    finally:
        library.seccomp_release(context)
        os.close(output)


def _check(code: int, what: str) -> None:
    if code != 0:
        raise FailedPreconditionError(
            f"libseccomp refused {what}: {os.strerror(-code)}", reason="SANDBOX_UNAVAILABLE"
        )
