//! A router, between servers that may say anything and clients that may say anything: it never
//! panics, never sends more to clients than three bytes for each that they sent, and in the end
//! holds no request.
//!
//! The input is a list of steps: a byte that says what happens, a byte that says from whom, a
//! length, and the bytes.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use tailcut_proto::node::{GSO_BYTES_MAX, Node, Time};
use tailcut_proto::router::{Forward, Router, RouterConfig, ServerConfig, Speaks};

fuzz_target!(|bytes: &[u8]| {
    let server =
        |index: u8, speaks| ServerConfig { addr: ([10, 0, 1, index], 8000).into(), speaks };
    let config = RouterConfig {
        policy: "jbsq:2".parse().unwrap(),
        forward: if bytes.len() % 2 == 0 { Forward::Annotate } else { Forward::Keep },
        servers: vec![
            server(0, Speaks::Extension),
            server(1, Speaks::Extension),
            server(2, Speaks::V1),
        ],
        ..RouterConfig::default()
    };
    let mut router = Router::new(0, config).unwrap();
    let mut buffer = vec![0; GSO_BYTES_MAX];
    let (mut now, mut paid_in, mut paid_out) = (1, 0, 0);
    let mut drain = |router: &mut Router, now: Time| {
        while let Some(transmit) = router.poll_transmit(now, &mut buffer) {
            let is_to_server =
                matches!(transmit.to, SocketAddr::V4(to) if to.ip().octets()[2] == 1);
            paid_out += if is_to_server { 0 } else { transmit.len };
        }
    };
    let mut rest = bytes;
    while let [kind, who, len, tail @ ..] = rest {
        let (datagram, next) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = next;
        if kind % 8 == 7 {
            now += u64::from(*who) * 100_000;
            router.handle_timeout(now);
        } else {
            let mut datagram = datagram.to_vec();
            if kind & 8 != 0 && datagram.len() >= 22 {
                datagram[0] = 0xcc;
                datagram[21] = 1;
            }
            let peer = SocketAddr::from((
                [10, 0, kind % 2, who % 4],
                if kind % 2 == 1 { 8000 } else { 33_000 },
            ));
            paid_in += datagram.len();
            router.handle_datagram(now, peer.into(), &mut datagram);
        }
        drain(&mut router, now);
    }
    for _ in 0..200 {
        now += 1_000_000_000;
        router.handle_timeout(now);
        drain(&mut router, now);
    }
    assert!(paid_out <= 3 * paid_in, "{paid_in} bytes in and {paid_out} out");
    assert_eq!(router.status().queue_len, 0, "nothing is held for ever");
});
