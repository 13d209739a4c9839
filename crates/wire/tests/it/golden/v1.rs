//! Version 1, to the byte as the published reference sends it; the headers are literals, so that
//! they do not depend on the code that they test.

use super::capture::Datagram;
use super::{hex, message};

/// A small exchange, one of 3000 bytes each way, a refusal, feedback, and one of 3000 bytes through
/// the reference's router.
pub(crate) fn datagrams() -> Vec<Datagram> {
    let mut all = small();
    all.extend(long("127.0.0.1:43001", None));
    all.extend(refused());
    all.extend(feedback());
    all.extend(long("10.77.0.3:33000", Some("10.77.0.2:8000")));
    all.push(Datagram::new(
        "10.77.0.4:8000",
        "10.77.0.2:9000",
        hex("cc002000 00000000 0001 80e8 0a4d0003"),
    ));
    all
}

fn small() -> Vec<Datagram> {
    vec![
        Datagram::new(CLIENT, SERVER, hex("cc0800c0 0001 0001 31323334")),
        Datagram::new(SERVER, CLIENT, hex("cc0811c0 0001 0001 31323334")),
        Datagram::new(CLIENT, SERVER, hex("cc0801c0 0002 0001")),
        Datagram::new(SERVER, CLIENT, hex("cc0811c0 0002 0001")),
    ]
}

/// The 3000-byte exchange. With a router, packet 0 goes to it and on to the server, its source kept
/// and its checksum zeroed.
fn long(client: &str, router: Option<&str>) -> Vec<Datagram> {
    let server = if router.is_some() { "10.77.0.4:8000" } else { SERVER };
    let first = hex("cc080080 0001 0004");
    let mut all = Vec::new();
    if let Some(router) = router {
        all.push(Datagram::new(client, router, packet(&first, 0, 14)));
    }
    let to_server = Datagram::new(client, server, packet(&first, 0, 14));
    all.push(Datagram { has_checksum: router.is_none(), ..to_server });
    all.push(Datagram::new(server, client, hex("cc0831c0 0001 0001 41434b")));
    all.push(Datagram::new(client, server, packet(&hex("cc080000 0001 0001"), 14, 1464)));
    all.push(Datagram::new(client, server, packet(&hex("cc080000 0001 0002"), 1478, 1464)));
    all.push(Datagram::new(client, server, packet(&hex("cc080040 0001 0003"), 2942, 58)));
    all.push(Datagram::new(server, client, packet(&hex("cc081180 0001 0003"), 0, 1464)));
    all.push(Datagram::new(server, client, packet(&hex("cc081100 0001 0001"), 1464, 1464)));
    all.push(Datagram::new(server, client, packet(&hex("cc081140 0001 0002"), 2928, 72)));
    all
}

fn refused() -> Vec<Datagram> {
    vec![
        Datagram::new(CLIENT, SERVER, hex("cc0800c0 0003 0001 31323334")),
        Datagram::new(SERVER, CLIENT, hex("cc0841c0 0003 0001 44524f50")),
        Datagram::new(SERVER, CLIENT, hex("cc0841c0 0001 0001 44524f50")),
    ]
}

/// Two in a row of the reference: the second shows what its stack held in the bytes that it leaves
/// unset.
fn feedback() -> Vec<Datagram> {
    vec![
        Datagram::new(SERVER, ROUTER, hex("cc002000 00000000 0001 a7f8 7f000001")),
        Datagram::new(SERVER, ROUTER, hex("ccec202c fd7f0000 0002 a7f9 7f000001")),
    ]
}

fn packet(header: &[u8], offset: usize, len: usize) -> Vec<u8> {
    [header, &message(offset, len)].concat()
}

const CLIENT: &str = "127.0.0.1:43000";
const SERVER: &str = "127.0.0.1:8000";
const ROUTER: &str = "127.0.0.1:9000";
