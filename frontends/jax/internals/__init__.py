"""The private parts of JAX and jaxlib that are used.

The idea: the modules of this package import private parts as they are loaded.  With an untested jax
that would be an ImportError that names a module; the check here comes first, wherever the package
is imported, and its FlintError names the versions that are known to work.
"""

from flint.host.environment import check_version

#: Versions of jax and jaxlib whose private parts are known to be as needed here.
KNOWN_VERSIONS = ">=0.8.3,<0.13"

for _distribution in ("jax", "jaxlib"):
    check_version(_distribution, KNOWN_VERSIONS)
