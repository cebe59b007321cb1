"""`python -m vibemq.testing.storage_child PROVIDER DIR`: append for ever, print each lsn, and wait to be killed."""

import sys
from pathlib import Path

from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.plugins import find
from vibemq.testing.storage_workload import STRONG, rows


def main(provider: str, data_dir: Path) -> None:
    plugin = find("storage", provider)
    storage = plugin.create(data_dir, plugin.settings())
    storage.open()
    lsn = storage.append([QueueCreated(1, "queue-1", STRONG, 1_000, "00"), GroupCreated(1, 0, "", True, 1)])
    first = 1
    while True:
        sys.stdout.write(f"{lsn}\n")
        sys.stdout.flush()
        lsn = storage.append([MessagesAdded(1, first, 2_000, rows(first, 5))])
        first += 5


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
