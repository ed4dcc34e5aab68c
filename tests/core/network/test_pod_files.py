"""What pods are called, and what their containers find in resolv.conf and hosts."""

from __future__ import annotations

import pytest

from allot.core.network.pod_files import (
    BadHostname,
    HostNames,
    Resolving,
    host_names,
    hosts_text,
    machine_hosts_text,
    parse_resolving,
    resolving,
    within_limits,
)

MACHINE = Resolving(servers=("192.0.2.53",), searches=("corp.example",), options=("timeout:1",))
CLUSTER = ("10.96.0.10",)


@pytest.mark.parametrize(
    ("policy", "host_network", "is_cluster"),
    [
        ("ClusterFirst", False, True),
        ("ClusterFirst", True, False),
        ("ClusterFirstWithHostNet", True, True),
        ("ClusterFirstWithHostNet", False, True),
        ("Default", False, False),
    ],
)
def test_a_pod_on_the_machines_network_asks_the_cluster_only_if_it_says_so(
    policy: str, host_network: bool, is_cluster: bool
) -> None:
    found = resolving(policy, Resolving(), MACHINE, CLUSTER, "ns", "corp.local", host_network=host_network)
    names = ("ns.svc.corp.local", "svc.corp.local", "corp.local", "corp.example")
    expected = Resolving(servers=CLUSTER, searches=names, options=("ndots:5",))
    assert found == (expected if is_cluster else MACHINE)


def test_without_a_policy_of_its_own_a_pod_has_nothing_but_what_it_says() -> None:
    own = Resolving(servers=("1.1.1.1",), searches=("resolv.conf.local",))
    assert resolving("None", own, MACHINE, CLUSTER, "ns", "cluster.local") == own


def test_a_domain_with_and_without_its_last_dot_is_one() -> None:
    assert parse_resolving("search a.example. . b.example\n").searches == ("a.example", ".", "b.example")


def test_what_resolvers_cannot_bear_is_left_out_and_told() -> None:
    fits = Resolving(servers=("1.1.1.1",), searches=("a",), options=("ndots:5",))
    assert within_limits(fits) == (fits, ())
    many = Resolving(servers=tuple(f"192.0.2.{each}" for each in range(4)))
    found, notes = within_limits(many)
    assert found.servers == many.servers[:3]
    assert notes == (
        "Nameserver limits were exceeded, some nameservers have been omitted, "
        "the applied nameserver line is: 192.0.2.0 192.0.2.1 192.0.2.2",
    )


@pytest.mark.parametrize(
    ("searches", "kept"),
    [
        (tuple(f"d{each}" for each in range(33)), 32),
        (("a", "b" * 254, "c"), 2),
        # 2048 characters with the blanks in between, and one more.
        (("a" * 200,) * 10 + ("b" * 38,), 11),
        (("a" * 200,) * 10 + ("b" * 39,), 10),
    ],
)
def test_search_domains_have_a_number_and_a_length(searches: tuple[str, ...], kept: int) -> None:
    found, notes = within_limits(Resolving(searches=searches))
    assert len(found.searches) == kept
    if kept < len(searches):
        assert notes == (
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {' '.join(found.searches)}",
        )


def named(name: str = "web-0", hostname: str = "", subdomain: str = "", *, as_full: bool = False) -> HostNames:
    return host_names(
        name, "ns", "cluster.local", hostname=hostname, subdomain=subdomain, as_full=as_full, override=None
    )


def test_a_pod_is_called_by_its_hostname_and_in_full_by_its_subdomain() -> None:
    assert named() == HostNames(hostname="web-0", kernel="web-0")
    assert named(hostname="db") == HostNames(hostname="db", kernel="db")
    full = "db.data.ns.svc.cluster.local"
    assert named(hostname="db", subdomain="data") == HostNames(hostname="db", full_name=full, kernel="db")
    assert named(hostname="db", subdomain="data", as_full=True) == HostNames(hostname="db", full_name=full, kernel=full)
    # Without a subdomain there is no name in full.
    assert named(as_full=True).kernel == "web-0"


def test_long_names_are_cut_where_a_name_can_end() -> None:
    assert named("a" * 62 + "-b").hostname == "a" * 62
    with pytest.raises(BadHostname, match=r"is too long \(64 characters is the max, 65 characters requested\)"):
        named("a" * 39, subdomain="data", as_full=True)
    assert len(named("a" * 38, subdomain="data", as_full=True).kernel) == 64


def test_an_override_replaces_all_of_it() -> None:
    found = host_names("p", "ns", "cluster.local", hostname="", subdomain="", as_full=False, override="my.own.name")
    assert found == HostNames(hostname="my.own.name", kernel="my.own.name")


def test_the_hosts_file_is_the_kubelets() -> None:
    assert hosts_text(("10.1.2.3", "fd00::3"), "db-0", "", [("192.0.2.9", ("a", "b"))]) == (
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
        "10.1.2.3\tdb-0\nfd00::3\tdb-0\n\n# Entries added by HostAliases.\n192.0.2.9\ta\tb\n"
    )
    assert machine_hosts_text("127.0.0.1 localhost\n", [("192.0.2.9", ("a",))]) == (
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
        "\n# Entries added by HostAliases.\n192.0.2.9\ta\n"
    )
