//! memcached's replies: the examples of its documents `protocol-binary` and `protocol.txt`, and
//! what contradicts them.

use super::*;

/// The reply to `get Hello` in the document: flags deadbeef, value World, cas 1.
const GET_HIT: &[u8] =
    b"\x81\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\xde\xad\xbe\xefWorld";
/// The reply when there is no such key.
const GET_MISS: &[u8] =
    b"\x81\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00Not found";

#[test]
fn the_binary_examples_of_the_document_are_read() {
    let binary = app("memcached-binary");
    check(&binary, GET, GET_HIT, keep(OK));
    check(&binary, GET, GET_MISS, keep(MISS));
    let mut set = GET_MISS[..24].to_vec();
    (set[1], set[7], set[11]) = (1, 0, 0);
    check(&binary, SET, &set, keep(OK));
}

#[test]
fn each_binary_status_has_its_kind() {
    let kinds = [
        (0x02, ErrorKind::NotStored),
        (0x03, ErrorKind::Refused),
        (0x04, ErrorKind::Refused),
        (0x05, ErrorKind::NotStored),
        (0x20, ErrorKind::Unauthorised),
        (0x81, ErrorKind::Refused),
        (0x82, ErrorKind::Failed),
        (0x85, ErrorKind::Busy),
    ];
    for (status, kind) in kinds {
        let mut reply = GET_MISS.to_vec();
        reply[7] = status;
        check(&app("memcached-binary"), GET, &reply, keep(Outcome::Error(kind)));
    }
}

#[test]
fn a_binary_reply_to_another_request_is_malformed() {
    // The magic of requests, another opcode, another opaque word, a key that does not fit its body,
    // a body beyond the limit.
    for (at, byte) in [(0, 0x80), (1, 0x01), (15, 1), (3, 6), (8, 0x7f)] {
        let mut reply = GET_HIT.to_vec();
        reply[at] = byte;
        check_malformed(&app("memcached-binary"), GET, &reply);
    }
}

#[test]
fn the_ascii_replies_of_the_document_are_read() {
    let ascii = app("memcached-ascii");
    check(&ascii, GET, b"VALUE a_key 0 5\r\nhello\r\nEND\r\n", keep(OK));
    check(&ascii, GET, b"VALUE a_key 12 7 99\r\n\r\nEND\r\n\r\nEND\r\n", keep(OK));
    check(&ascii, GET, b"VALUE a 0 0\r\n\r\nEND\r\n", keep(OK));
    check(&ascii, GET, b"END\r\n", keep(MISS));
    check(&ascii, SET, b"STORED\r\n", keep(OK));
    check(&ascii, SET, b"NOT_STORED\r\n", keep(Outcome::Error(ErrorKind::NotStored)));
    check(&ascii, SET, b"ERROR\r\n", keep(REFUSED));
    check(&ascii, GET, b"CLIENT_ERROR line format\r\n", keep(REFUSED));
    let failed = keep(Outcome::Error(ErrorKind::Failed));
    check(&ascii, SET, b"SERVER_ERROR out of memory storing object\r\n", failed);
}

#[test]
fn what_is_no_ascii_reply_is_malformed() {
    let ascii = app("memcached-ascii");
    let cases: [&[u8]; 9] = [
        b"STORED\r\n",
        b"END\n",
        b"VALUE a 0 5\r\nhello!\r\nEND\r\n",
        b"VALUE a 0 5\r\nhello\r\nSTORED\r\n",
        b"VALUE a 0\r\n",
        b"VALUE a 0 -5\r\n",
        b"VALUE a 0 2000000000\r\n",
        b"\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
    ];
    for bytes in cases {
        check_malformed(&ascii, GET, bytes);
    }
    check_malformed(&ascii, SET, b"END\r\n");
    check_malformed(&ascii, SET, &[b'x'; 5_000]);
}
