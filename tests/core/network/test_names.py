"""The names of a cluster, by Kubernetes' DNS specification 1.1.0, and the messages that ask for them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.network import dns_messages as dns
from allot.core.network.names import Directory
from allot.core.network.routes import routes_of

WEB = {
    "metadata": {"namespace": "default", "name": "web"},
    "spec": {
        "clusterIP": "10.96.7.7",
        "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    },
}
DB = {
    "metadata": {"namespace": "data", "name": "db"},
    "spec": {"clusterIP": "None", "ports": [{"name": "pg", "port": 5432}]},
}
DB_SLICE = {
    "addressType": "IPv4",
    "ports": [{"name": "pg", "port": 15432}],
    "endpoints": [
        {"addresses": ["10.128.0.5"], "hostname": "db-1", "conditions": {"ready": True}},
        {"addresses": ["10.128.0.4"], "hostname": "db-0", "conditions": {"ready": True}},
        {"addresses": ["10.128.0.6"], "conditions": {"ready": True}},
        {"addresses": ["10.128.0.9"], "hostname": "db-9", "conditions": {"ready": False}},
    ],
}
OTHER = {
    "metadata": {"namespace": "default", "name": "other"},
    "spec": {"type": "ExternalName", "externalName": "db.example.org"},
}
ALIAS = {
    "metadata": {"namespace": "default", "name": "alias"},
    "spec": {"type": "ExternalName", "externalName": "web.default.svc.cluster.local."},
}
LOOP = {
    "metadata": {"namespace": "default", "name": "loop"},
    "spec": {"type": "ExternalName", "externalName": "loop.default.svc.cluster.local"},
}


@pytest.fixture
def directory() -> Directory:
    made = Directory()
    for service, slices in ((WEB, []), (DB, [DB_SLICE]), (OTHER, []), (ALIAS, []), (LOOP, [])):
        metadata = service["metadata"]
        made.update(metadata["namespace"], metadata["name"], routes_of(service, slices))
    return made


def found(directory: Directory, name: str, type_: int) -> list[str] | str:
    """Records as text, or why there are none."""
    reply = directory.find(tuple(name.split(".")), type_)
    if reply is None:
        return "not ours"
    if not reply.records:
        return "nothing" if reply.exists else "no such name"
    return [_text(each) for each in reply.records] + ([f"-> {reply.leads_to}"] if reply.leads_to else [])


def _text(record: dns.Record) -> str:
    if record.type == dns.A:
        return ".".join(map(str, record.data))
    if record.type == dns.SRV:
        return f"{struct.unpack('>HHH', record.data[:6])[2]} {_name(record.data[6:])}"
    return _name(record.data) if record.type in (dns.PTR, dns.CNAME) else record.data.decode("latin-1")


def _name(data: bytes) -> str:
    labels = []
    while data[0]:
        labels.append(data[1 : data[0] + 1].decode())
        data = data[data[0] + 1 :]
    return ".".join(labels)


@pytest.mark.parametrize(
    ("name", "type_", "expected"),
    [
        ("web.default.svc.cluster.local", dns.A, ["10.96.7.7"]),
        ("web.default.svc.cluster.local", dns.AAAA, "nothing"),
        ("_http._tcp.web.default.svc.cluster.local", dns.SRV, ["80 web.default.svc.cluster.local"]),
        ("_dns._udp.web.default.svc.cluster.local", dns.SRV, ["53 web.default.svc.cluster.local"]),
        ("_http._udp.web.default.svc.cluster.local", dns.SRV, "no such name"),
        ("_http._tcp.web.default.svc.cluster.local", dns.A, "nothing"),
        ("_tcp.web.default.svc.cluster.local", dns.SRV, "nothing"),
        ("db.data.svc.cluster.local", dns.A, ["10.128.0.4", "10.128.0.5", "10.128.0.6"]),
        ("db-0.db.data.svc.cluster.local", dns.A, ["10.128.0.4"]),
        ("10-128-0-6.db.data.svc.cluster.local", dns.A, ["10.128.0.6"]),
        ("db-9.db.data.svc.cluster.local", dns.A, "no such name"),
        (
            "_pg._tcp.db.data.svc.cluster.local",
            dns.SRV,
            [f"15432 {host}.db.data.svc.cluster.local" for host in ("db-0", "db-1", "10-128-0-6")],
        ),
        ("other.default.svc.cluster.local", dns.A, ["db.example.org", "-> db.example.org"]),
        ("other.default.svc.cluster.local", dns.CNAME, ["db.example.org"]),
        ("alias.default.svc.cluster.local", dns.A, ["web.default.svc.cluster.local", "10.96.7.7"]),
        ("loop.default.svc.cluster.local", dns.A, "nothing"),
        ("nope.default.svc.cluster.local", dns.A, "no such name"),
        ("web.nowhere.svc.cluster.local", dns.A, "no such name"),
        ("default.svc.cluster.local", dns.A, "nothing"),
        ("svc.cluster.local", dns.A, "nothing"),
        ("nope.cluster.local", dns.A, "no such name"),
        ("10-128-0-4.data.pod.cluster.local", dns.A, ["10.128.0.4"]),
        ("10-128-0-400.data.pod.cluster.local", dns.A, "no such name"),
        ("10-128-0-4.nowhere.pod.cluster.local", dns.A, "no such name"),
        ("dns-version.cluster.local", dns.TXT, ["\x051.1.0"]),
        ("7.7.96.10.in-addr.arpa", dns.PTR, ["web.default.svc.cluster.local"]),
        ("4.0.128.10.in-addr.arpa", dns.PTR, ["db-0.db.data.svc.cluster.local"]),
        ("9.9.96.10.in-addr.arpa", dns.PTR, "no such name"),
        ("8.8.8.8.in-addr.arpa", dns.PTR, "not ours"),
        ("example.org", dns.A, "not ours"),
        ("cluster.local.example.org", dns.A, "not ours"),
    ],
)
def test_names_mean_what_the_specification_says(directory: Directory, name: str, type_: int, expected: object) -> None:
    assert found(directory, name, type_) == expected


def test_a_service_that_is_gone_leaves_no_name(directory: Directory) -> None:
    directory.update("data", "db", None)
    assert found(directory, "db-0.db.data.svc.cluster.local", dns.A) == "no such name"
    assert found(directory, "4.0.128.10.in-addr.arpa", dns.PTR) == "no such name"
    assert found(directory, "data.svc.cluster.local", dns.A) == "no such name"


def asked(name: str, type_: int = dns.A, options: bytes = b"") -> bytes:
    head = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 1 if options else 0)
    return head + dns.encode_name(dns.name_of(name)) + struct.pack(">HH", type_, 1) + options


def test_a_question_is_read_and_its_answer_names_it() -> None:
    question = dns.parse_question(
        asked("Web.Default.svc.cluster.local", options=b"\0" + struct.pack(">HHIH", 41, 1400, 0, 0))
    )
    assert question.labels == ("web", "default", "svc", "cluster", "local")
    assert (question.number, question.type, question.udp_bytes) == (7, dns.A, 1400)
    record = dns.Record(dns.A, bytes((10, 0, 0, 1)), 5)
    answer = dns.answer(question, 0, (record,), is_ours=True, recurses=False, bytes_max=512)
    number, flags, questions, answers, _, others = struct.unpack_from(">HHHHHH", answer)
    assert (number, flags & 0x8400, questions, answers, others) == (7, 0x8400, 1, 1, 1)
    assert b"\x03Web\x07Default" in answer
    assert dns.records_of(answer) == (dns.Record(dns.A, bytes((10, 0, 0, 1)), 5, question.name),)


def test_an_answer_that_does_not_fit_says_so() -> None:
    question = dns.parse_question(asked("db.data.svc.cluster.local"))
    many = tuple(dns.Record(dns.A, bytes((10, 0, 0, each)), 5) for each in range(100))
    short = dns.answer(question, 0, many, is_ours=True, recurses=False, bytes_max=512)
    assert len(short) <= 512
    assert struct.unpack_from(">H", short, 2)[0] & 0x0200
    assert len(dns.answer(question, 0, many, is_ours=True, recurses=False, bytes_max=65535)) > 512


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", None),
        (b"\0" * 11, None),
        (struct.pack(">HHHHHH", 7, 0x8000, 1, 0, 0, 0), None),
        (struct.pack(">HHHHHH", 7, 0x2800, 1, 0, 0, 0), dns.NOT_IMPLEMENTED),
        (struct.pack(">HHHHHH", 7, 0, 2, 0, 0, 0), dns.FORMAT_ERROR),
        (struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", dns.FORMAT_ERROR),
        (struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\x3fabc", dns.FORMAT_ERROR),
        (struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\1a\0\0\1\0\3", dns.REFUSED),
    ],
)
def test_what_is_no_question_gets_an_error_or_nothing(message: bytes, code: int | None) -> None:
    with pytest.raises(dns.BadQuestion) as raised:
        dns.parse_question(message)
    assert (raised.value.code if raised.value.number is not None else None) == code


@given(st.binary(max_size=600))
def test_bytes_are_a_question_or_refused(data: bytes) -> None:
    try:
        dns.parse_question(data)
    except dns.BadQuestion:
        pass
    try:
        dns.records_of(data)
    except ValueError:
        pass


def test_a_name_that_leads_to_itself_ends() -> None:
    head = struct.pack(">HHHHHH", 7, 0x8000, 0, 1, 0, 0)
    with pytest.raises(ValueError, match="compression loop"):
        dns.records_of(head + b"\xc0\x0c" + b"\0" * 10)


def test_addresses_that_nobody_here_has_may_be_known_to_others() -> None:
    made = Directory()
    spec = {"clusterIP": "192.168.7.7", "ports": [{"port": 80}]}
    made.update("default", "far", routes_of({"metadata": {"namespace": "default", "name": "far"}, "spec": spec}, []))
    assert found(made, "7.7.168.192.in-addr.arpa", dns.PTR) == ["far.default.svc.cluster.local"]
    assert found(made, "8.7.168.192.in-addr.arpa", dns.PTR) == "not ours"
    assert found(made, "7.0.96.10.in-addr.arpa", dns.PTR) == "no such name"
    assert found(made, "168.192.in-addr.arpa", dns.PTR) == "not ours"
