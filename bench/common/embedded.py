"""A program with an embedded broker, as few settings as possible and asyncio's own loop, and what is sent to it."""

BROKER = """
import sys, anyio, vibemq
async def main():
    async with vibemq.Broker(sys.argv[1], port=0) as broker:
        print(broker.port, flush=True)
        await broker.run()
anyio.run(main)
"""
"""For `python -c`, with the folder of its data; says its port."""
BODY = {"id": 4711, "item": "tea", "text": "x" * 200}
