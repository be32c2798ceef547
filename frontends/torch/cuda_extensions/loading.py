"""Extensions that a program compiles from C++ and CUDA sources (``cpp_extension.load``).

The idea: this machine has no compiler for CUDA, and kernels need memory that fake tensors do not
have.  Sources with CUDA code are read instead, and their host code is followed (``host_code.py``);
functions have the names that the sources give them, in a module or in ``torch.ops``.  Extensions
without CUDA code are compiled as always.

    module = cpp_extension.load("scan", ["scan.cpp", "scan.cu"]); module.forward(x)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from flint.frontends.torch.cluster.cuda import release
from flint.frontends.torch.cuda_extensions.host_code import HostCode
from flint.frontends.torch.cuda_extensions.reading import Binding, Function, read
from flint.frontends.torch.patching import replace
from flint.frontends.torch.recording.schemas import OWN_PARTS
from flint.host.imports import watch_imports
from flint.launching import nvcc
from flint.launching.notes import noted

_CPP_EXTENSION = "torch.utils.cpp_extension"
_libraries: dict[str, Any] = {}
#: Text in a C++ type -> the type of a schema; the first that fits.
_TYPES = (
    (r"vector<.*Tensor|TensorList", "Tensor[]"), (r"optional<.*Tensor", "Tensor?"),
    (r"Tensor", "Tensor"), (r"(vector|optional)<.*int|IntArrayRef", "int[]"), (r"bool", "bool"),
    (r"string", "str"), (r"float|double", "float"), (r"Scalar", "Scalar"), (r"int|size_t", "int"),
)  # fmt: skip


def apply() -> None:
    """Read the sources of extensions with CUDA code, from PyTorch's module's import on, and answer
    for its compiler."""
    nvcc.watch(release())
    watch_imports({_CPP_EXTENSION: _watch})


def _watch() -> None:
    import torch.utils.cpp_extension as module

    compile_extension: Any = module._jit_compile  # private in PyTorch 2.13

    @functools.wraps(compile_extension)
    def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        files = [Path(item) for item in sources]
        if not any(item.suffix in (".cu", ".cuh") for item in files):
            return compile_extension(name, sources, *args, **kwargs)
        options = [
            word for item in (*args, *kwargs.values()) if isinstance(item, list) for word in item
        ]
        return _loaded(name, files, options)

    replace(module, "_jit_compile", load)
    if module.CUDA_HOME is None:  # a build of PyTorch for CPUs does not look
        replace(module, "CUDA_HOME", nvcc.home())


def _loaded(name: str, files: list[Path], options: list[str]) -> ModuleType:
    texts = {str(item): item.read_text(errors="replace") for item in files}
    sources = read(texts, name, options)
    code = HostCode(sources)
    noted[
        f"the extension {name} is not compiled: its C++ is followed, and its CUDA kernels are ops"
    ] += 1
    module = ModuleType(name)
    functions = {
        (item.library, item.name): item.function for item in sources.bindings if item.function
    }
    for binding in sources.bindings:
        function = functions.get((binding.library, binding.name), binding.name)
        called = code.functions.get(function)
        if called is None:
            continue
        if not binding.library:
            setattr(module, binding.name, called)
        elif not _has(binding):
            _define(binding, sources.functions[function][0], called)
    return module


def _has(binding: Binding) -> bool:
    return hasattr(getattr(torch.ops, binding.library), binding.name)


def _define(binding: Binding, function: Function, called: Callable[..., Any]) -> None:
    if binding.library not in _libraries:
        new: Any = torch.library.Library
        _libraries[binding.library] = new(binding.library, "FRAGMENT")
    schema = binding.schema.rpartition("::")[2] if binding.schema else _schema(binding, function)
    _libraries[binding.library].define(schema)
    OWN_PARTS[getattr(getattr(torch.ops, binding.library), binding.name).default] = called


def _schema(binding: Binding, function: Function) -> str:
    """As PyTorch infers it from a function's type."""
    takes = ", ".join(f"{_type(item.kind)} {item.name}" for item in function.parameters)
    several = re.search(r"tuple<(.*)>", function.result)
    if "void" in function.result:
        gives = "()"
    elif several is not None:
        gives = f"({', '.join(_type(item) for item in several[1].split(','))})"
    else:
        gives = _type(function.result)
    return f"{binding.name}({takes}) -> {gives}"


def _type(text: str) -> str:
    plain = text.replace(" ", "")
    return next((kind for pattern, kind in _TYPES if re.search(pattern, plain)), "Any")
