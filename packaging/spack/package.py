# ruff: noqa: F403, F405
# For a repository of Spack packages, in packages/py_metamori/. From the source tree:
#   spack develop --path . py-metamori@0.1.0; spack install py-metamori@0.1.0
# With a release: its archive's `url`, and its checksum in `version`.
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMetamori(PythonPackage):
    """Incremental checkpoints of the files of unmodified programs, restored to any of them."""

    license("MIT")

    version("0.1.0")

    variant("levels", default=False, description="Memory of MPI programs at four levels, FTI's interface")
    variant("fortran", default=False, description="FTI's module for Fortran")

    requires("target=x86_64:", msg="Metamori knows x86-64 only")
    requires("platform=linux", msg="Metamori is built on Linux's own calls")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("python@3.11:+shared", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cffi@1.15:", type=("build", "run"))
    depends_on("py-sortedcontainers@2.4:", type=("build", "run"))

    with when("+levels"):
        depends_on("mpi", type=("build", "run"))
        depends_on("py-mpi4py@4.1:", type=("build", "run"))
        depends_on("py-numpy@1.26:", type=("build", "run"))
        depends_on("py-h5py@3.10:", type=("build", "run"))
        depends_on("py-xxhash@3.4:", type=("build", "run"))
        depends_on("isa-l", type=("build", "run"))

    import_modules = ["metamori", "metamori.cli.main"]
