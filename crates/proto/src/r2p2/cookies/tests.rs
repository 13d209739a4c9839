//! Cookies and tags to the byte, and when they are asked for.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{Policy, RequestRepr, RpcId, Segment};

use super::*;
use crate::peer::cookies::{AskCookies, PERIOD_NS};

const KEY: [u8; 16] = [7; 16];
const CLIENT: &str = "10.0.0.1:33000";

fn client() -> SocketAddr {
    CLIENT.parse().unwrap()
}

fn always(clock_ns: u64) -> Cookies {
    Cookies::new(AskCookies::Always, &KEY, clock_ns)
}

/// The first packet of a request of one, tagged.
fn tagged(payload: &[u8], cookie: u64) -> Vec<u8> {
    let segment =
        Segment { message_len: payload.len() as u32, segment_len: 1380, index: 0, count: 1 };
    let repr = RequestRepr {
        policy: Policy::Unrestricted,
        segment,
        flags: Flags::IDEMPOTENT,
        client_clock_us: 5,
        deadline_us: 1_000,
        floor: 3,
        ..RequestRepr::control(MessageType::Request, 4, RpcId(0x0102_0304_0506_0708))
    };
    let mut bytes = vec![0; ROUTED_LEN + payload.len()];
    repr.emit(&mut bytes).copy_from_slice(payload);
    write_tag(&mut bytes, cookie);
    bytes
}

fn is_tagged(cookies: &Cookies, address: SocketAddr, bytes: &[u8]) -> bool {
    cookies.is_tagged(address, &Packet::parse(bytes).unwrap())
}

/// `conformance/sealed/check.py` computes the first two from the page.
#[test]
fn cookies_and_tags_are_what_the_page_says() {
    let cookie = always(0).cookie(client());
    assert_eq!(cookie, 0x2388_e24c_26ca_c801);
    let bytes = tagged(b"words", cookie);
    assert_eq!(u64::from_be_bytes(*bytes[32..].first_chunk().unwrap()), 0x52c8_6fdd_3137_c8f1);
    let v6: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
    assert_eq!(always(PERIOD_NS).cookie(v6), 0xa941_8095_8902_88fb);
}

#[test]
fn a_cookie_is_good_for_its_period_and_the_next() {
    let mut cookies = always(77 * PERIOD_NS);
    let bytes = tagged(b"words", cookies.cookie(client()));
    for (now, is_good) in [
        (0, true),
        (PERIOD_NS - 1, true),
        (PERIOD_NS, true),
        (2 * PERIOD_NS - 1, true),
        (2 * PERIOD_NS, false),
        (3 * PERIOD_NS, false),
        (4 * PERIOD_NS, false),
        (40 * PERIOD_NS, false),
    ] {
        cookies.turn(now);
        assert_eq!(is_tagged(&cookies, client(), &bytes), is_good, "at {now}");
    }
    // Made by one whose clock is fast.
    assert!(is_tagged(&always(76 * PERIOD_NS), client(), &bytes));
    assert!(!is_tagged(&always(75 * PERIOD_NS), client(), &bytes));
}

#[test]
fn a_tag_is_of_one_address_one_key_and_one_packet() {
    let cookies = always(0);
    let cookie = cookies.cookie(client());
    let good = tagged(b"words", cookie);
    assert!(is_tagged(&cookies, client(), &good));
    for other in ["10.0.0.2:33000", "10.0.0.1:33001", "[::ffff:a00:2]:33000"] {
        assert!(!is_tagged(&cookies, other.parse().unwrap(), &good), "{other}");
    }
    assert!(!is_tagged(&Cookies::new(AskCookies::Always, &[8; 16], 0), client(), &good));
    let token = crate::peer::validation::Tokens::new(&KEY, 0).token(client());
    assert!(!is_tagged(&cookies, client(), &tagged(b"words", token)), "a token is no cookie");
    // The cookie itself is no tag, nor is none.
    for word in [0, cookie] {
        let mut echoed = good.clone();
        echoed[32..40].copy_from_slice(&u64::to_be_bytes(word));
        assert!(!is_tagged(&cookies, client(), &echoed));
    }
}

/// Whichever bit another has changed: those that routers write are free, and no others.
#[test]
fn only_what_routers_write_may_change() {
    let cookies = always(0);
    let good = tagged(b"words", cookies.cookie(client()));
    for bit in 0..good.len() * 8 {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let Ok(packet) = Packet::parse(&changed) else { continue };
        let is_routers = matches!(bit / 8, 28..32 | 46 | 47 | 48..72)
            || bit / 8 == 20 && 0x0e & 1 << (bit % 8) != 0;
        let is_good = cookies.is_tagged(client(), &packet);
        assert_eq!(is_good, is_routers, "bit {} of byte {}", bit % 8, bit / 8);
    }
}

#[test]
fn what_gives_none_says_nothing_of_cookies() {
    assert_eq!(Cookies::new(AskCookies::Never, &KEY, 0).flag(), 0);
    assert_eq!(always(0).flag(), Flags::COOKIE);
}
