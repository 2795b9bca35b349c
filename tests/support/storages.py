"""How much memory the tensors of a process have, to the byte."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Storages(TorchDispatchMode):
    """Within the block, counts the memory of every tensor that an operation takes or makes.

    Shared memory counts once. FSDP frees what it gathered by resizing it, which is no operation:
    that is seen too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        """The most bytes at once since `begin`."""
        self._held = 0
        self._sizes: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        self._resize = torch.UntypedStorage.resize_

    @property
    def held(self) -> int:
        """Bytes now."""
        return self._held

    def begin(self) -> None:
        """Forgets the peak."""
        self.peak = self._held

    def __enter__(self) -> Storages:
        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = self._resize(storage, size)
            self._see(storage)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            # Its operations on what this process has come here again.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for each in tree_iter((args, kwargs, result)):
            if isinstance(each, torch.Tensor) and each.device.type == "cpu":
                self._see(each.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type != "cpu":
            return
        key, size = id(storage), storage.nbytes()
        found = self._sizes.get(key)
        before = found[1] if found else 0
        if found is None or size != before:
            gone = found[0] if found else weakref.ref(storage, lambda _: self._forget(key))
            self._sizes[key] = (gone, size)
            self._held += size - before
            self.peak = max(self.peak, self._held)

    def _forget(self, key: int) -> None:
        self._held -= self._sizes.pop(key)[1]
