"""A label of 151 with 150 classes: CUDA reports it as a device-side assert."""

import sys

print("epoch 0 step 0 loss 5.0112", flush=True)
for thread in (3, 17, 40):
    print(
        "/pytorch/aten/src/ATen/native/cuda/Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: "
        f"block: [0,0,0], thread: [{thread},0,0] Assertion `t >= 0 && t < n_classes` failed.",
        file=sys.stderr,
    )


def backward() -> None:
    raise RuntimeError(
        "CUDA error: device-side assert triggered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, "
        "so the stacktrace below might be incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


backward()
