"""Inside the runtime image, as root: mounts disk images and lets a judge look at each.

`MODULE IMAGE...`: each image is mounted through a loop device that goes away with the mount, which
goes away with the container. The judge runs as the runtime's own user. One line of JSON for each.
"""

import ctypes
import fcntl
import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

USER = 10001
PLACE = Path("/mnt/volume")
LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
LOOP_MAJOR, CONTROL = 7, os.makedev(10, 237)
CONFIG_BYTES, FLAGS_AT = 304, 60
TRIES = 20
LIBC = ctypes.CDLL(None, use_errno=True)


def node(path: Path, kind: int, device: int) -> None:
    """Make a device file that the container does not have."""
    with suppress(FileExistsError):
        os.mknod(path, kind | 0o600, device)


def loop(image: Path) -> tuple[Path, int]:
    """Attach an image to a free loop device; return it with a descriptor that holds it.

    Source: linux/loop.h, struct loop_config: fd, block size, loop_info64 whose flags lie at byte
    60 of the whole, 8 unused words.
    """
    control = Path("/dev/loop-control")
    node(control, 0o020000, CONTROL)
    with image.open("r+b") as backing, control.open("r+b", buffering=0) as asked:
        config = bytearray(CONFIG_BYTES)
        struct.pack_into("=I", config, 0, backing.fileno())
        struct.pack_into("=I", config, FLAGS_AT, LO_FLAGS_AUTOCLEAR)
        for tried in range(TRIES):
            number = fcntl.ioctl(asked, LOOP_CTL_GET_FREE)
            device = Path(f"/dev/loop{number}")
            node(device, 0o060000, os.makedev(LOOP_MAJOR, number))
            held = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(held, LOOP_CONFIGURE, bytes(config))
            except OSError:
                os.close(held)
                if tried == TRIES - 1:
                    raise
            else:
                return device, held
    raise OSError("no loop device is free")


def call(name: str, *arguments: object) -> None:
    """Call libc; OSError with its errno where it fails."""
    if getattr(LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def look(module: str, image: Path) -> str:
    """Mount one image, and return what the judge says."""
    PLACE.mkdir(parents=True, exist_ok=True)
    device, held = loop(image)
    try:
        call("mount", bytes(device), bytes(PLACE), b"ext4", ctypes.c_ulong(0), None)
    finally:
        os.close(held)
    try:
        command = [sys.executable, "-m", module, "look", str(PLACE)]
        ended = subprocess.run(
            command, user=USER, group=USER, extra_groups=[], stdout=subprocess.PIPE, check=True
        )
    finally:
        call("umount2", bytes(PLACE), 0)
    return ended.stdout.decode().strip().splitlines()[-1]


def main() -> int:
    """Look at each image, and write what was said beside the first."""
    module, *images = sys.argv[1:]
    lines = [look(module, Path(image)) for image in images]
    Path(images[0]).with_name("outcomes.json").write_text(f"[{','.join(lines)}]", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
