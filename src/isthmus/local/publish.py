"""Node ports on localhost: takes connections on 127.0.0.1 and passes them on, byte for byte.

Runs as a process of its own, in the network of the host but otherwise inside the cluster's switch, so that it ends
with the cluster: python -m isthmus.local.publish 198.18.0.2 30022:30022 …
"""

import asyncio
import sys

_CHUNK = 65536


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _serve(address: str, host_port: int, node_port: int) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(address, node_port)
        except OSError:
            writer.close()
            return
        try:
            # An end of one direction is passed on and the other lives; a failure of one is the end of both.
            async with asyncio.TaskGroup() as directions:
                directions.create_task(_pump(reader, there_writer))
                directions.create_task(_pump(there_reader, writer))
        except* OSError:
            pass
        finally:
            writer.close()
            there_writer.close()

    server = await asyncio.start_server(pass_on, "127.0.0.1", host_port)
    await server.serve_forever()


async def _main(address: str, pairs: list[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for pair in pairs:
            host_port, node_port = map(int, pair.split(":"))
            tasks.create_task(_serve(address, host_port, node_port))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2:]))
