import subprocess
import sys

FREED = """
import sys
from vibemq.server.heap import give_large_buffers_back
give_large_buffers_back()

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
