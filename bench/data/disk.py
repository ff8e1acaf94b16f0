"""A disk of limited bandwidth: a folder that is read and written no faster than
so many bytes per second, with nothing of it in the page cache.

It is a file system of its own (FUSE, spoken to the kernel without a library) over
a folder, usually one in memory. Reads and writes take turns, each for as long as
its bytes take, so that all who use the disk share its time; names, sizes and dates
take none, but that creating a file or a directory, and opening a file, take as long as one
says, one after another, as where a server keeps the names. Needs /dev/fuse.

    disk.py MOUNTPOINT FOLDER READ_BYTES_PER_S WRITE_BYTES_PER_S [CREATE_S [OPEN_S]]
"""

import ctypes
import dataclasses
import errno
import heapq
import os
import pathlib
import select
import signal
import stat
import struct
import subprocess
import sys
import time

# The most that one request moves, which is what one user of the disk gets while
# others wait.
PIECE_BYTES = 1 << 16
# An idle disk may be ahead of its rate by so much: who reads piece by piece then
# loses nothing between two of them, nor when the machine is busy.
AHEAD_S = 0.01
# Above whatever else the machine does.
PRIORITY = 5
# So that what is measured has the processor when it wants it.
NICE = -15
# How long the kernel may believe names and attributes, which change through it alone.
VALID_S = 3600

ROOT = 1
DIRECT_IO = 1
HEADER = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
(LOOKUP, FORGET, GETATTR, SETATTR, READLINK, SYMLINK) = (1, 2, 3, 4, 5, 6)
(MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ, WRITE, STATFS, RELEASE) = (9, 10, 11, 12, 13, 14, 15, 16, 17, 18)
(FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR) = (20, 25, 26, 27, 28, 29, 30)
(CREATE, INTERRUPT, DESTROY, BATCH_FORGET, RENAME2) = (35, 36, 38, 42, 45)
CREATING = (CREATE, MKDIR, SYMLINK, LINK)
(SET_MODE, SET_SIZE, SET_ATIME, SET_MTIME, SET_ATIME_NOW, SET_MTIME_NOW) = (1, 8, 16, 32, 128, 256)


def limited(mountpoint, folder, read_bytes_per_s, write_bytes_per_s, create_s=0, open_s=0):
    """Mounts a disk, which a process of its own serves until that is killed;
    that process."""
    words = [sys.executable, __file__, str(mountpoint), str(folder), str(read_bytes_per_s), str(write_bytes_per_s),
             str(create_s), str(open_s)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not os.path.ismount(mountpoint):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no file system at {mountpoint}: see above")
        time.sleep(0.01)
    return process


class Clock:
    """When the disk has done what it was asked for."""

    def __init__(self, read_bytes_per_s, write_bytes_per_s, create_s, open_s):
        self.rates = {READ: read_bytes_per_s, WRITE: write_bytes_per_s}
        self.names_s = {OPEN: open_s, **{kind: create_s for kind in CREATING}}
        # When bytes can be moved, and names made.
        self.free_at = [0.0, 0.0]
        self.waiting = []
        self.added = 0

    def add(self, kind, count, answer):
        of_names = kind not in self.rates
        seconds = self.names_s[kind] if of_names else count / self.rates[kind]
        ahead = 0 if of_names else AHEAD_S
        self.free_at[of_names] = max(self.free_at[of_names], time.monotonic() - ahead) + seconds
        self.added += 1
        heapq.heappush(self.waiting, (self.free_at[of_names], self.added, answer))

    def wait_s(self):
        return max(self.waiting[0][0] - time.monotonic(), 0) if self.waiting else None

    def due(self):
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            yield heapq.heappop(self.waiting)[2]


@dataclasses.dataclass
class Node:
    """What the kernel knows by a number: a directory has a descriptor, anything else
    a directory and a name there, because the kernel remembers more files than a
    process may open."""

    descriptor: int
    parent: int
    name: bytes
    inode: int
    lookups: int = 0


class Disk:
    """The kernel's requests, answered from a folder."""

    def __init__(self, device, folder, clock):
        self.device = device
        self.clock = clock
        root = os.open(folder, os.O_PATH)
        self.nodes = {ROOT: Node(root, ROOT, b"", os.stat(root).st_ino)}
        # Numbers of what has a name, by inode.
        self.numbers = {}
        self.next = ROOT + 1
        # What open directories have in them.
        self.listings = {}
        self.does = {
            LOOKUP: self.lookup, GETATTR: self.getattr, SETATTR: self.setattr, READLINK: self.readlink,
            SYMLINK: self.symlink, MKDIR: self.mkdir, UNLINK: self.unlink, RMDIR: self.rmdir,
            RENAME: self.rename, RENAME2: self.rename2, LINK: self.link, OPEN: self.open, READ: self.read,
            WRITE: self.write, STATFS: self.statfs, RELEASE: self.release, FSYNC: self.nothing,
            FLUSH: self.nothing, INIT: self.init, OPENDIR: self.opendir, READDIR: self.readdir,
            RELEASEDIR: self.releasedir, FSYNCDIR: self.nothing, CREATE: self.create, DESTROY: self.nothing,
        }

    def serve(self):
        buffer = PIECE_BYTES + 4096
        while True:
            ready, _, _ = select.select([self.device], [], [], self.clock.wait_s())
            for answer in self.clock.due():
                self.say(*answer)
            if not ready:
                continue
            try:
                request = os.read(self.device, buffer)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return
            self.handle(request)

    def handle(self, request):
        length, kind, unique, node, *_ = HEADER.unpack_from(request)
        body = request[HEADER.size:length]
        if kind in (FORGET, BATCH_FORGET, INTERRUPT):
            self.forget(kind, node, body)
            return
        try:
            answer = self.does[kind](node, body)
        except KeyError:
            self.say(unique, -errno.ENOSYS, b"")
        except OSError as error:
            self.say(unique, -error.errno, b"")
        else:
            if kind in (READ, WRITE):
                count = len(answer) if kind == READ else struct.unpack_from("<I", answer)[0]
                self.clock.add(kind, count, (unique, 0, answer))
            elif self.clock.names_s.get(kind, 0) > 0:
                self.clock.add(kind, 1, (unique, 0, answer))
            else:
                self.say(unique, 0, answer)

    def say(self, unique, error, body):
        try:
            os.write(self.device, ANSWER.pack(ANSWER.size + len(body), error, unique) + body)
        except OSError as failed:
            # Nobody waits for it any more.
            if failed.errno != errno.ENOENT:
                raise

    def directory(self, node):
        found = self.nodes.get(node)
        if found is None or found.descriptor is None:
            raise OSError(errno.ESTALE, "no such directory")
        return found.descriptor

    def path(self, node):
        found = self.nodes[node]
        if found.descriptor is not None:
            return os.fsencode(f"/proc/self/fd/{found.descriptor}")
        return os.fsencode(f"/proc/self/fd/{self.directory(found.parent)}/") + found.name

    def forget(self, kind, node, body):
        if kind == INTERRUPT:
            return
        gone = [(node, *struct.unpack_from("<Q", body))] if kind == FORGET else struct.iter_unpack("<QQ", body[8:])
        for number, lookups in gone:
            entry = self.nodes.get(number)
            if entry is None or number == ROOT:
                continue
            entry.lookups -= lookups
            if entry.lookups <= 0:
                del self.nodes[number]
                # Another file may have its inode by now.
                if self.numbers.get(entry.inode) == number:
                    del self.numbers[entry.inode]
                if entry.descriptor is not None:
                    os.close(entry.descriptor)

    def attributes(self, found):
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        return ATTRIBUTES.pack(
            found.st_ino, found.st_size, found.st_blocks, *(at // 10**9 for at in times),
            *(at % 10**9 for at in times), found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0)

    def stat(self, parent, name):
        return os.stat(name, dir_fd=self.directory(parent), follow_symlinks=False)

    def entry(self, parent, name):
        found = self.stat(parent, name)
        number = self.numbers.get(found.st_ino)
        if number is None:
            is_directory = stat.S_ISDIR(found.st_mode)
            place = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.directory(parent)) if is_directory else None
            number, self.next = self.next, self.next + 1
            self.numbers[found.st_ino] = number
            self.nodes[number] = Node(place, parent, name, found.st_ino)
        node = self.nodes[number]
        node.parent, node.name = parent, name
        node.lookups += 1
        return struct.pack("<4Q2I", number, 0, VALID_S, VALID_S, 0, 0) + self.attributes(found)

    def with_attributes(self, node):
        is_open = self.nodes[node].descriptor is not None
        return struct.pack("<QII", VALID_S, 0, 0) + self.attributes(os.stat(self.path(node), follow_symlinks=is_open))

    def without_name(self, parent, name, do):
        """Has a name go. What it named may be open, or have another name, which is
        not known here: it has a descriptor from then on."""
        try:
            found = self.stat(parent, name)
        except FileNotFoundError:
            found = None
        number = found and self.numbers.get(found.st_ino)
        place = number and os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.directory(parent))
        try:
            do()
        except OSError:
            if place is not None:
                os.close(place)
            raise
        if place is None:
            return
        node = self.nodes[number]
        if node.descriptor is None:
            node.descriptor = place
        else:
            os.close(place)
        if found.st_nlink == 1 or stat.S_ISDIR(found.st_mode):
            # The next file with this inode is another one.
            del self.numbers[found.st_ino]

    def init(self, _node, body):
        major, minor, ahead, _ = struct.unpack_from("<4I", body)
        big_writes, pages = 1 << 5, 1 << 22
        return struct.pack("<4I2H2I2H2IH11H", major, min(minor, 38), ahead, big_writes | pages, 64, 48,
                           PIECE_BYTES, 1, PIECE_BYTES // 4096, 0, 0, 0, 0, *(0,) * 11)

    def lookup(self, node, body):
        return self.entry(node, body[:-1])

    def getattr(self, node, _body):
        return self.with_attributes(node)

    def setattr(self, node, body):
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, *_ = struct.unpack_from("<2I6Q8I", body)
        path = self.path(node)
        if valid & SET_MODE:
            os.chmod(path, mode & 0o7777)
        if valid & SET_SIZE:
            os.truncate(path, size)
        if valid & (SET_ATIME | SET_MTIME):
            now, before = time.time_ns(), os.stat(path)
            times = []
            for set_, now_, at, at_ns, old in ((SET_ATIME, SET_ATIME_NOW, atime, atime_ns, before.st_atime_ns),
                                               (SET_MTIME, SET_MTIME_NOW, mtime, mtime_ns, before.st_mtime_ns)):
                times.append(now if valid & now_ else at * 10**9 + at_ns if valid & set_ else old)
            os.utime(path, ns=tuple(times))
        return self.with_attributes(node)

    def readlink(self, node, _body):
        return os.readlink(self.path(node))

    def symlink(self, node, body):
        name, target, _ = body.split(b"\0")
        os.symlink(target, name, dir_fd=self.directory(node))
        return self.entry(node, name)

    def mkdir(self, node, body):
        name = body[8:-1]
        os.mkdir(name, struct.unpack_from("<I", body)[0] & 0o7777, dir_fd=self.directory(node))
        return self.entry(node, name)

    def unlink(self, node, body):
        name, place = body[:-1], self.directory(node)
        self.without_name(node, name, lambda: os.unlink(name, dir_fd=place))
        return b""

    def rmdir(self, node, body):
        name, place = body[:-1], self.directory(node)
        self.without_name(node, name, lambda: os.rmdir(name, dir_fd=place))
        return b""

    def rename(self, node, body):
        return self.move(node, struct.unpack_from("<Q", body)[0], body[8:])

    def rename2(self, node, body):
        to, flags, _ = struct.unpack_from("<Q2I", body)
        if flags:
            raise OSError(errno.EINVAL, "neither exchanges nor keeps what is there")
        return self.move(node, to, body[16:])

    def move(self, node, to, names):
        old, new, _ = names.split(b"\0")
        places = {"src_dir_fd": self.directory(node), "dst_dir_fd": self.directory(to)}
        self.without_name(to, new, lambda: os.rename(old, new, **places))
        moved = self.nodes.get(self.numbers.get(self.stat(to, new).st_ino))
        if moved is not None:
            moved.parent, moved.name = to, new
        return b""

    def link(self, node, body):
        old, name = struct.unpack_from("<Q", body)[0], body[8:-1]
        os.link(self.path(old), name, dst_dir_fd=self.directory(node), follow_symlinks=False)
        return self.entry(node, name)

    def open(self, node, body):
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_DIRECT)
        return struct.pack("<QII", os.open(self.path(node), flags), DIRECT_IO, 0)

    def create(self, node, body):
        flags, mode, _, _ = struct.unpack_from("<4I", body)
        name = body[16:-1]
        place = os.open(name, (flags | os.O_CREAT) & ~os.O_DIRECT, mode & 0o7777, dir_fd=self.directory(node))
        return self.entry(node, name) + struct.pack("<QII", place, DIRECT_IO, 0)

    def read(self, _node, body):
        place, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(place, size, offset)

    def write(self, _node, body):
        place, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(place, body[40:40 + size], offset), 0)

    def release(self, _node, body):
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def opendir(self, node, _body):
        handle, self.next = self.next, self.next + 1
        self.listings[handle] = []
        return struct.pack("<QII", handle, 0, 0)

    def releasedir(self, _node, body):
        del self.listings[struct.unpack_from("<Q", body)[0]]
        return b""

    def readdir(self, node, body):
        handle, offset, size = struct.unpack_from("<QQI", body)
        if offset == 0:
            with os.scandir(self.path(node)) as found:
                self.listings[handle] = sorted(
                    (one.name, one.inode(), kind_of(one)) for one in found)
        said = []
        for at, (name, inode, kind) in enumerate(self.listings[handle][offset:offset + size // 24], offset + 1):
            line = struct.pack("<QQII", inode, at, len(name), kind) + name
            line += bytes(-len(line) % 8)
            size -= len(line)
            if size < 0:
                break
            said.append(line)
        return b"".join(said)

    def statfs(self, node, _body):
        found = os.statvfs(self.path(node))
        return struct.pack("<5Q4I6I", found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree,
                           found.f_bsize, 255, found.f_frsize, 0, *(0,) * 6)

    def nothing(self, _node, _body):
        return b""


def kind_of(entry):
    """As `readdir` says it."""
    return (stat.S_IFLNK if entry.is_symlink() else stat.S_IFDIR if entry.is_dir() else stat.S_IFREG) >> 12


def prefer():
    """Lets this process go before others, where it may say so."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except PermissionError:
        pass


def run_apart(words):
    """Runs a program and ends with it. It has a session of its own, because many kernels
    share processors between those, and is killed when this process is told to end, or is."""
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: process.kill())
    sys.exit(1 if process.wait() < 0 else process.returncode)


def prefer_session():
    """Lets this session go before others, where it may say so."""
    if os.geteuid() != 0:
        return
    os.nice(NICE)
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write(str(NICE))
    except OSError:
        # Sessions are nothing to this kernel.
        pass


def main():
    prefer()
    mountpoint, folder, *numbers = sys.argv[1:]
    clock = Clock(*[float(number) for number in [*numbers, "0", "0"][:4]])
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},max_read={PIECE_BYTES}"
    words = (b"disk", os.fsencode(mountpoint), b"fuse")
    if libc.mount(*words, ctypes.c_ulong(0), options.encode()) != 0:
        number = ctypes.get_errno()
        sys.exit(f"cannot mount a file system at {mountpoint}: {os.strerror(number)}")
    Disk(device, pathlib.Path(folder), clock).serve()


if __name__ == "__main__":
    main()
