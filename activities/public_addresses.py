"""Finds the address of a host on the public internet, so that a URL from outside reaches nothing inside (SSRF)."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class PrivateAddress(Exception):
    """A host is, or also is, somewhere inside."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host.

    Raises:
        OSError: its name is not known, or cannot be looked up.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def public_address(host: str, port: int, resolve: Resolve = resolve) -> str:
    """Return an address of a host, to be connected to as it is: looked up again, the name might lead elsewhere.

    Raises:
        OSError: its name is not known, or cannot be looked up.
        PrivateAddress: one of its addresses is not public.
    """
    addresses = await resolve(host, port)
    if not addresses:
        raise OSError("the name has no address")
    for address in addresses:
        if not is_public(ipaddress.ip_address(address.partition("%")[0])):
            raise PrivateAddress(f"{host} is not a public address")
    return addresses[0]


def is_public(address: IPAddress) -> bool:
    """Tell whether an address, and each that is hidden in it, is one of the public internet."""
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    hidden: list[IPAddress] = [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
    hidden += address.teredo or ()
    if address in _NAT64:
        hidden.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return all(is_public(each) for each in hidden)
