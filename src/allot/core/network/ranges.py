"""The addresses of a cluster on one machine. Imports next to nothing: small programs use it.

Pods that run something have an address on a bridge. Those of placeholders, of which there can be a million, are in blocks, each of which
belongs to an agent: one process answers for a whole block. All of them exist only inside of the cluster's network namespace.
"""

from __future__ import annotations

SERVICES, SERVICES_BITS = "10.96.0.0", 12
# As everywhere: the first address is the API server's, the tenth that of the names.
API_ADDRESS, DNS_ADDRESS = "10.96.0.1", "10.96.0.10"
DOMAIN = "cluster.local"
PODS, PODS_BITS = "10.128.0.0", 9
BRIDGED, BRIDGED_BITS = "10.128.0.0", 16
GATEWAY = "10.128.0.1"
BLOCKS = tuple(f"10.{second}.0.0" for second in range(144, 256, 16))
BLOCK_BITS = 12
BLOCK_SIZE = 1 << (32 - BLOCK_BITS)


def number_of(address: str) -> int:
    """An address of IPv4 as a number; -1 if it is none."""
    parts = address.split(".")
    if len(parts) != 4 or not all(each.isascii() and each.isdigit() and len(each) <= 3 for each in parts):
        return -1
    octets = [int(each) for each in parts]
    return -1 if max(octets) > 255 else int.from_bytes(octets)


def address_of(number: int) -> str:
    """The other way round."""
    return ".".join(str(each) for each in number.to_bytes(4))


def is_in(address: str, network: str, bits: int) -> bool:
    """Whether an address belongs to a network."""
    number = number_of(address)
    return number >= 0 and number >> (32 - bits) == number_of(network) >> (32 - bits)


def is_of_pod(address: str) -> bool:
    """Whether an address can be a pod's: none of the network's own."""
    if is_in(address, BRIDGED, BRIDGED_BITS):
        return number_of(GATEWAY) < number_of(address) < number_of(BRIDGED) + (1 << BRIDGED_BITS) - 1
    return block_of(address) != ""


def block_of(address: str) -> str:
    """The block that an address of a placeholder belongs to; empty if it is none."""
    return next((each for each in BLOCKS if is_in(address, each, BLOCK_BITS)), "")
