"""A GPU reports an uncorrectable memory error in the middle of an epoch."""


class AcceleratorError(RuntimeError):
    __module__ = "torch"


def step(number: int) -> float:
    if number == 6120:
        raise AcceleratorError(
            "CUDA error: uncorrectable ECC error encountered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call, "
            "so the stacktrace below might be incorrect.\n"
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
        )
    return 1.9 - number / 20000


for number in range(6000, 6200, 20):
    print(f"step {number} loss {step(number):.4f}", flush=True)
