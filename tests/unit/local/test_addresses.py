import ipaddress
from itertools import combinations

import pytest

from isthmus.local.addresses import MAX_NODES, SLOTS, Addresses

Network = ipaddress.IPv4Network


def nodes(addresses: Addresses) -> Network:
    return Network(f"{addresses.host}/24", strict=False)


def ranges(addresses: Addresses) -> list[Network]:
    return [nodes(addresses), Network(addresses.services), Network(addresses.all_pods)]


def test_no_two_ranges_of_any_clusters_overlap_and_all_are_for_tests_of_networks() -> None:
    every = [each for slot in range(SLOTS) for each in ranges(Addresses(slot))]
    assert len(every) == 3 * 16
    assert all(each.subnet_of(Network("198.18.0.0/15")) for each in every)
    assert not [pair for pair in combinations(every, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.parametrize("slot", range(SLOTS))
def test_every_node_has_an_address_and_a_range_of_pods_of_its_own(slot: int) -> None:
    addresses = Addresses(slot)
    hosts = [addresses.host, *(addresses.node(index) for index in range(MAX_NODES))]
    pods = [Network(addresses.pods(index)) for index in range(MAX_NODES)]
    assert len(set(hosts)) == 1 + 16
    assert all(ipaddress.IPv4Address(host) in nodes(addresses) for host in hosts)
    assert len(set(pods)) == 16
    assert all(each.subnet_of(Network(addresses.all_pods)) for each in pods)


def test_the_first_cluster_lies_where_the_documentation_says() -> None:
    first = Addresses(0)
    assert (first.host, first.node(0), first.node(1)) == ("198.18.0.1", "198.18.0.2", "198.18.0.3")
    assert (first.services, first.api_service, first.dns_service) == ("198.18.4.0/22", "198.18.4.1", "198.18.4.10")
    assert (first.all_pods, first.pods(0), first.pods(15)) == ("198.18.16.0/20", "198.18.16.0/24", "198.18.31.0/24")
