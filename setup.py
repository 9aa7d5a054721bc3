"""Build the native parts of the package, and its man pages. The rest of its description is in pyproject.toml.

* ``metamori/libmetamori.so``      the preload library: plain C, knows nothing of Python
* ``metamori/_area.abi3.so``       cffi module through which the package reads and writes the run area;
                                   ``metamori/_area.pyi`` its types, read from the module
* ``metamori/libmetamori_rt.so``   the embedded runtime: cffi entry points linked against a shared libpython
* ``metamori/libmetamori_fti.so``  FTI's C interface (memory at four levels), for programs that link with it

One compiler call per source file, repeated only when the source, a header that it includes or the command changed, and
every result is moved into place in one step: a library that a running program has mapped is never
written to. ``CC`` chooses the compiler; ``METAMORI_CFLAGS`` is appended to every compiler call;
``METAMORI_SANITIZE=address,undefined`` instruments the preload library alone (`make sanitize`).
``METAMORI_CHECKED=1`` builds ``metamori/libmetamori-checked.so`` too, with assertions and stop points, for tests.
"""
from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SHIM = ROOT / "shim_c"
PUBLIC_HEADERS = [SHIM / "include" / name for name in ("metamori.h", "fti.h")]

CC = shlex.split(os.environ.get("CC", "gcc"))
FC = shlex.split(os.environ.get("FC", "gfortran"))
COMMON = ["-fPIC", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden",
          "-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection",
          *shlex.split(os.environ.get("METAMORI_CFLAGS", ""))]
# The shim defines __read_chk and its like itself, so no header may turn its own calls into them.
UNFORTIFIED = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0",
               # glibc marks paths nonnull; programs pass NULL all the same and get EFAULT from the kernel
               "-fno-delete-null-pointer-checks", "-Wno-nonnull-compare"]
FORTIFIED = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
# cffi writes one uniform signature for all functions, and starts Python itself, so that the program name
# can only be set by the function that Python 3.11 deprecates.
GENERATED = ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-deprecated-declarations"]
# The memory engine runs where no libc is, and while the thread's own memory is being replaced (shim_c/src/memory),
# but for the files that lead there.
ALONE = ["-fno-stack-protector", "-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns"]
WITH_LIBC = ("memory_glue.c", "program_back.c")
# Sanitizers look functions up before they are ready, ThreadSanitizer asks for a thread's stack before it is
# ready to hear from that thread, and the runtime's thread is none that they know.
NOT_INSTRUMENTED = ("runtime.c", "wrap_pid.c", "loader.c", "wrap_loader.c")
# Linked side by side: a process that has been forked takes a page fault for each 64 KiB of code, and each page of
# variables, that it comes to until it executes a program, and the kernel unmaps what these have mapped.
AT_EACH_START = {"buffer", "call_filter", "context", "descriptor_table", "elf", "environment", "exec", "fsize_limit",
                 "inherited_fds", "init", "lift", "listener", "lock", "lock_owner", "memory_glue", "mount_view",
                 "numbers", "position", "private_fds", "processes", "renumber", "reserve_fds", "runtime", "scratch",
                 "slots", "wrap_exec", "wrap_pid", "wrap_signal", "write_watch"}
INCLUDES = [f"-I{SHIM / 'include'}", f"-I{SHIM / 'src'}"]
# Symbols under the versions that old C libraries have too; these must be told where such a library has them.
OLD_NAMES = ["-include", str(SHIM / "src" / "base" / "old_names.h")]
# The loader before glibc 2.30 looks for a version in the library that is named with it and nowhere else, so the linker
# is shown libraries that have these as they were.
OLD_PLACES = {"libdl.so.2": {"GLIBC_2.2.5": "dladdr dlerror", "GLIBC_2.3.3": "dlinfo", "GLIBC_2.3.4": "dlmopen"},
              "libpthread.so.0": {"GLIBC_2.2.5": "pthread_create pthread_mutexattr_init pthread_mutexattr_settype "
                                                 "pthread_testcancel"},
              "librt.so.1": {"GLIBC_2.2.5": "aio_return"}}
# The runtime lives in its own link namespace, where a second copy of a sanitizer cannot; its thread, which
# runtime.c starts, is not one that a sanitizer knows.
SANITIZE = [f"-fsanitize={kinds}" for kinds in filter(None, [os.environ.get("METAMORI_SANITIZE")])]
LINK = ["-shared", "-Wl,-z,relro,-z,now", "-Wl,--as-needed", "-Wl,--build-id=sha1"]

# Where Debian keeps the library of its own Python 3.11, for interpreters that come without a shared one.
DEBIAN_LIBPYTHON = "/usr/lib/{multiarch}/libpython{version}.so.1.0"


def included(list_of_gcc: Path) -> list[Path]:
    """The source and the headers that an object was made of; all headers where that is not known."""
    if list_of_gcc.exists():
        return [Path(name) for name in list_of_gcc.read_text().partition(":")[2].replace("\\\n", " ").split()]
    return [path for pattern in ("*.h", "*.def") for path in SHIM.rglob(pattern)]


def is_newer(made: Path, sources: list[Path]) -> bool:
    """Whether ``made`` is there, and was made after the last change of each of its sources, none of which has gone."""
    return made.exists() and all(path.exists() and path.stat().st_mtime_ns < made.stat().st_mtime_ns
                                 for path in sources)


def replace_if_built(command: list[str], output: Path) -> None:
    """Run a compiler that writes ``output`` under a temporary name, then put it in place."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        subprocess.run([*command, "-o", str(partial)], check=True)
        partial.replace(output)
    except FileNotFoundError:
        raise SystemExit(f"metamori: cannot build: no C compiler named '{command[0]}' "
                         "(on Debian: apt-get install gcc)") from None
    except subprocess.CalledProcessError as failure:
        raise SystemExit(f"metamori: cannot build {output.name}: {CC[0]} ended with status "
                         f"{failure.returncode}") from None
    finally:
        partial.unlink(missing_ok=True)


def compile_one(source: Path, flags: list[str], folder: Path) -> Path:
    """Compile ``source`` unless its object is newer than all that it includes, and of the same command."""
    output = folder / ("_".join(source.relative_to(ROOT).with_suffix("").parts) + ".o")
    alone = source.parent.name == "memory" and source.name not in WITH_LIBC
    if source.name in NOT_INSTRUMENTED or alone:
        flags = [flag for flag in flags if flag not in SANITIZE]
    command = [*CC, *COMMON, *OLD_NAMES, *flags, *(ALONE if alone else []), "-c", str(source)]
    written, headers = output.with_suffix(".cmd"), output.with_suffix(".d")
    if is_newer(output, [source, *included(headers)]) and written.exists() \
            and written.read_text() == shlex.join(command):
        return output
    written.unlink(missing_ok=True)
    replace_if_built([*command, "-MMD", "-MF", str(headers)], output)
    written.write_text(shlex.join(command))
    return output


def build_library(target: Path, sources: list[Path], flags: list[str], link: list[str], folder: Path) -> None:
    """Compile what is stale, on all cores, and link when any object is newer than ``target``."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda source: compile_one(source, flags, folder), sources))
    command = [*CC, *LINK, *map(str, objects), *link]
    written, wanted = folder / f"{target.name}.cmd", f"{target} {shlex.join(command)}"
    if is_newer(target, objects) and written.exists() and written.read_text() == wanted:
        return
    replace_if_built(command, target)
    written.write_text(wanted)
    print(f"metamori: built {target.name}")


def old_places(folder: Path) -> list[str]:
    """What to link with for a wheel that starts with old C libraries (METAMORI_OLD_GLIBC=1); nothing otherwise."""
    if not os.environ.get("METAMORI_OLD_GLIBC"):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    for library, versions in OLD_PLACES.items():
        source, script = folder / f"{library}.c", folder / f"{library}.map"
        names = " ".join(versions.values()).split()
        source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
        script.write_text("".join(f"{version} {{ {' '.join(f'{name};' for name in named.split())} }};\n"
                                  for version, named in versions.items()))
        replace_if_built([*CC, "-w", "-fno-builtin", "-shared", "-nostdlib", str(source), f"-Wl,-soname,{library}",
                          f"-Wl,--version-script,{script}"], folder / library)
    return ["-Wl,--no-as-needed", *(str(folder / library) for library in OLD_PLACES), "-Wl,--as-needed"]


def load(path: Path):
    """Run one of the build descriptions in metamori without importing the package around it."""
    spec = importlib.util.spec_from_file_location(f"metamori_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_if_changed(path: Path, emit) -> Path:
    """Let ``emit(name)`` write C beside ``path``; keep the old file, and its time, when it says the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"fresh_{path.name}")
    with contextlib.redirect_stdout(io.StringIO()):
        emit(str(fresh))
    if path.exists() and path.read_bytes() == fresh.read_bytes():
        fresh.unlink()
    else:
        fresh.replace(path)
    return path


def find_libpython() -> Path | None:
    """The shared libpython of the Python that builds, else Debian's of the same version, else None."""
    version = sysconfig.get_config_var("LDVERSION") or sysconfig.get_python_version()
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    names = [sysconfig.get_config_var("INSTSONAME") or "", f"libpython{version}.so.1.0"]
    folders = [sysconfig.get_config_var("LIBDIR") or "", f"{sys.base_prefix}/lib"]
    candidates = [Path(folder, name) for folder in folders for name in names if folder and ".so" in name]
    candidates.append(Path(DEBIAN_LIBPYTHON.format(multiarch=multiarch, version=version)))
    return next((path for path in candidates if path.exists()), None)


class NativePart(Extension):
    """One shared library of the package, with the file name that it must have."""

    def __init__(self, name: str, filename: str) -> None:
        super().__init__(name, sources=[])
        self.filename = filename


class BuildNative(build_ext):
    """Builds each NativePart; reports what cannot be built and why, and continues with the rest."""

    def get_ext_filename(self, fullname: str) -> str:
        """File name of an extension inside the package, with or without the package in front."""
        for part in self.extensions:
            if part.name in (fullname, f"metamori.{fullname}"):
                return str(Path("metamori", part.filename))
        return super().get_ext_filename(fullname)

    def get_export_symbols(self, ext):
        return []

    def run(self) -> None:
        """Build everything, one builder at a time in this tree."""
        self.objects = ROOT / "build" / f"native-{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        self.objects.mkdir(parents=True, exist_ok=True)
        with open(self.objects / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.target = ROOT / "metamori" if self.inplace else Path(self.build_lib).resolve() / "metamori"
            self.copy_header()
            self.build_extensions()

    def build_extensions(self) -> None:
        self.build_shim()
        self.build_area()
        self.build_runtime()
        self.build_levels()
        self.make_share()

    def make_share(self) -> None:
        """Man pages, completions and the files for pkg-config, CMake and modules, all made from the one source.

        In place they lie in the package; a wheel has them where an environment's `share` is looked at."""
        share, more = self.target / "share", []
        if not self.inplace:
            version = sysconfig.get_python_version()
            share = self.objects / "share"
            shutil.rmtree(share, ignore_errors=True)
            more = ["--package", f"../lib/python{version}/site-packages/metamori", "--beside", str(self.target)]
        done = subprocess.run([sys.executable, str(ROOT / "tools" / "generate"), str(share), *more], text=True,
                              capture_output=True, check=False)
        if done.returncode:
            return self.skip("share", (done.stderr.strip().splitlines() or ["tools/generate failed"])[-1])
        if not self.inplace:
            files = sorted(path for path in share.rglob("*") if path.is_file())
            self.distribution.data_files = [
                (str(path.parent.relative_to(share.parent)), [os.path.relpath(path, ROOT)]) for path in files]
        return None

    def copy_header(self) -> None:
        """Put the headers where ``metamori config --cflags`` points, in place as in an installed package."""
        for header in PUBLIC_HEADERS:
            target = self.target / "include" / header.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != header.read_bytes():
                shutil.copy(header, target)

    def build_shim(self) -> None:
        sources = sorted((SHIM / "src").rglob("*.c"), key=lambda path: (path.stem not in AT_EACH_START, path))
        link = SANITIZE or ["-Wl,-z,defs"]  # sanitizers find their own symbols when the program starts
        # what calls a wrapper from inside means ours: a hundred symbols less to look up whenever a program starts
        link = [*link, "-Wl,-Bsymbolic-functions"]
        link = [*link, *old_places(self.objects / "old"), "-ldl", "-lpthread"]
        flags = [*UNFORTIFIED, *INCLUDES, *SANITIZE]
        build_library(self.target / "libmetamori.so", sources, flags, link, self.objects / "shim")
        if os.environ.get("METAMORI_CHECKED"):
            build_library(self.target / "libmetamori-checked.so", sources, [*flags, "-DMM_CHECKED"], link,
                          self.objects / "shim-checked")

    def build_area(self) -> None:
        description = ROOT / "metamori" / "runtime" / "area" / "build_area.py"
        folder = self.objects / "area"
        source = write_if_changed(folder / "area.c", load(description).ffibuilder.emit_c_code)
        names = ("area/area", "area/requests", "area/cache", "base/birth", "base/check", "base/crc", "area/freeze",
                 "area/lock", "area/lock_owner", "area/looks", "area/looks_ahead", "area/known_numbers",
                 "area/processes", "area/scope", "area/space_reserve", "area/scratch",
                 "area/slots", "area/area_check", "base/lift", "base/reserve_fds", "process/elf", "process/listener",
                 "process/misc_format", "process/proc_look", "process/stream_peek", "area/table")
        shared = [SHIM / "src" / f"{name}.c" for name in names]
        build_library(self.target / "_area.abi3.so", [source, *shared],
                      [*GENERATED, *FORTIFIED, *INCLUDES, f"-I{sysconfig.get_path('include')}"], [], folder)
        types = [sys.executable, str(ROOT / "tools" / "area-types"), str(self.target / "_area.abi3.so")]
        write_if_changed(self.target / "_area.pyi", lambda name: subprocess.run([*types, name], check=True))

    def build_runtime(self) -> None:
        description = ROOT / "metamori" / "runtime" / "inside" / "build_embed.py"
        libpython = find_libpython()
        if libpython is None:
            return self.skip("libmetamori_rt.so", "this Python has no shared libpython (on Debian: apt-get "
                             f"install libpython{sysconfig.get_python_version()}); there are no checkpoints "
                             "without it")
        folder = self.objects / "rt"
        source = write_if_changed(folder / "embed.c", load(description).emit)
        flags = [*UNFORTIFIED, *GENERATED, *INCLUDES, f"-I{sysconfig.get_path('include')}"]
        build_library(self.target / "libmetamori_rt.so", [source], flags, self.with_python(libpython), folder)

    def with_python(self, libpython: Path) -> list[str]:
        """An rpath and not a runpath: the program's own LD_LIBRARY_PATH must not choose another libpython."""
        return [str(libpython), *old_places(self.objects / "old"), "-ldl", "-lpthread", "-Wl,--disable-new-dtags",
                f"-Wl,-rpath,{libpython.parent}"]

    def build_levels(self) -> None:
        libpython = find_libpython()
        if libpython is None:
            return None                    # said by build_runtime
        folder = self.objects / "levels"
        description = load(ROOT / "metamori" / "levels" / "api" / "build_capi.py")
        source = write_if_changed(folder / "fti.c", description.emit)
        # Lives in the program's own namespace: nothing of Python may take the place of a symbol of the program.
        link = [*self.with_python(libpython), "-Wl,-soname,libmetamori_fti.so"]
        flags = [*UNFORTIFIED, *GENERATED, f"-I{sysconfig.get_path('include')}"]
        build_library(self.target / "libmetamori_fti.so", [source], flags, link, folder)
        # Debian's MPICH is libmpich.so.12; mpi4py asks for the name that the MPICH ABI has elsewhere (protect/comm.py).
        empty = write_if_changed(folder / "empty.c", lambda name: Path(name).write_text("typedef int nothing;\n"))
        build_library(self.target / "libmpi_mpich.so", [empty], [], ["-Wl,-soname,libmpi.so.12"], folder)
        return self.build_fortran(folder)

    def build_fortran(self, folder: Path) -> None:
        """The module FTI: a library, and fti.mod, which only this compiler's version can read."""
        if shutil.which(FC[0]) is None:
            return self.skip("the Fortran module FTI", f"there is no {FC[0]} (on Debian: apt-get install gfortran)")
        fortran = load(ROOT / "metamori" / "levels" / "api" / "build_fortran.py")
        source = write_if_changed(folder / "fti.f90", fortran.emit)
        library, module = self.target / "libmetamori_fti_f90.so", self.target / "include" / "fti.mod"
        if module.exists() and library.exists() and library.stat().st_mtime_ns > source.stat().st_mtime_ns:
            return None
        replace_if_built([*FC, "-O2", "-ffree-line-length-none", "-fPIC", "-shared", f"-J{folder}", str(source),
                          "-Wl,-soname,libmetamori_fti_f90.so"], library)
        shutil.copy(folder / "fti.mod", module)
        print(f"metamori: built {library.name}")
        return None

    def skip(self, what: str, why: str) -> None:
        print(f"metamori: {what} is not built: {why}", file=sys.stderr)


setup(
    ext_modules=[
        NativePart("metamori.libmetamori", "libmetamori.so"),
        NativePart("metamori._area", "_area.abi3.so"),
        NativePart("metamori.libmetamori_rt", "libmetamori_rt.so"),
        NativePart("metamori.libmetamori_fti", "libmetamori_fti.so"),
        NativePart("metamori.libmpi_mpich", "libmpi_mpich.so"),
    ],
    cmdclass={"build_ext": BuildNative},
)
