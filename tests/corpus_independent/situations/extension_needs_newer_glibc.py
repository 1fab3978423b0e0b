"""A compiled extension was built against a newer C library than the image has."""

print("importing kernels", flush=True)


def load_extension() -> None:
    raise ImportError(
        "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by "
        "/opt/venv/lib/python3.11/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so)"
    )


load_extension()
