import subprocess
import sys

FREED = """
import sys
from vibemq.server.heap import tune_heap
tune_heap()

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

bytearray(24 << 20)  # The size from which buffers are mapped would rise above those that follow.
before = resident()
held = [bytearray(b"x") * (4 << 20) for _ in range(8)]
kept = bytearray(b"x") * (3 << 20)
full = resident()
del held
print(full - before, resident() - before)
"""


def test_freed_buffers_do_not_stay_resident() -> None:
    told = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=60)
    full, left = map(int, told.stdout.split())
    assert full > 30 << 20
    assert left < 8 << 20


BATCHES = """
import resource
from vibemq.server.heap import tune_heap
tune_heap()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    # As a batch is read, joined and written.
    held = [bytearray(b"x") * (300 << 10) for _ in range(3)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_memory_of_a_batch_is_kept_for_the_next() -> None:
    told = subprocess.run([sys.executable, "-c", BATCHES], capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) < 5_000, "as many pages as a few batches have, of 200"
