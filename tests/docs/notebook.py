"""Runs the cells of a notebook as Jupyter does: one after the other, in one namespace and one event loop.

The cells are the JSON list of texts that is the only argument.
"""

import asyncio
import json
import sys

from IPython.core.interactiveshell import InteractiveShell


async def run(cells: list[str]) -> None:
    shell = InteractiveShell()
    for cell in cells:
        result = await shell.run_cell_async(cell, transformed_cell=shell.transform_cell(cell))
        result.raise_error()


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
