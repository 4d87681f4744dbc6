"""Use a GPU through the driver alone: fill its memory for some seconds, and write a checkpoint on SIGTERM."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

GIB = 1 << 30
checkpoint = Path(os.environ["BERTH_WORKSPACE"], "steps")
stopped = threading.Event()


def call(name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")


def stop(*_: object) -> None:
    stopped.set()


signal.signal(signal.SIGTERM, stop)
seconds, fills = float(sys.argv[1]), sys.argv[2] == "busy"
print("device files", *sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")))
cuda = ctypes.CDLL("libcuda.so.1")
count, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
print("GPUs", count.value, flush=True)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(GIB))
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("first step", step, flush=True)
end = time.monotonic() + seconds
while time.monotonic() < end and not stopped.is_set():
    if fills:
        for value in range(100):
            call("cuMemsetD32_v2", memory, value, ctypes.c_size_t(GIB // 4))
        call("cuCtxSynchronize")
    else:
        time.sleep(0.1)
    step += 1
if stopped.is_set():
    checkpoint.write_text(str(step))
print("last step", step, flush=True)
