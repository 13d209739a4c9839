//! Cookies over real sockets, of a server that does not even trust loopback.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tailcut::{AskCookies, ClientBuilder, Config, Error, Protocol, ServerBuilder, homa, sealed};

use crate::library::OnDrop;

/// A server that trusts nobody and answers by what it is asked, while `check` runs.
fn with_server(ask: AskCookies, check: impl FnOnce(SocketAddr)) -> u64 {
    with_server_of(Protocol::R2p2, ask, check)
}

/// A server of either protocol that trusts nobody and answers by what it is asked, while `check`
/// runs.
fn with_server_of(protocol: Protocol, ask: AskCookies, check: impl FnOnce(SocketAddr)) -> u64 {
    let (mut config, mut homa) = (Config::default(), homa::Config::default());
    config.serving.trusted.clear();
    homa.serving.trusted.clear();
    let builder = ServerBuilder::new().protocol(protocol).config(config).homa_config(homa);
    let builder = builder.cookies(ask);
    let mut server = builder.bind("127.0.0.1:0").expect("a port");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut calls = 0;
            let ended = server.run(|request| {
                calls += 1;
                let bytes = request.bytes().to_vec();
                let _ = request.reply(&bytes);
            });
            ended.map(|()| calls)
        });
        let guard = OnDrop(Some(|| stop.stop()));
        // What is sent again in the first 10 ms may have run before the server was started: it is
        // refused.
        std::thread::park_timeout(Duration::from_millis(20));
        check(address);
        drop(guard);
        thread.join().expect("the server does not panic").expect("the socket holds")
    })
}

/// A request of one packet, as the first of a client that knows nothing: 76 bytes.
fn request(token: u64) -> Vec<u8> {
    let mut bytes = vec![0; 76];
    bytes[..8].copy_from_slice(&[0xcc, 72, 0, 0xc0, 0, 1, 0, 1]);
    bytes[8..16].copy_from_slice(&0x0102_0304_0500_0001_u64.to_be_bytes());
    bytes[19] = 4;
    bytes[21] = 1;
    bytes[32..40].copy_from_slice(&token.to_be_bytes());
    bytes[44..46].copy_from_slice(&1380_u16.to_be_bytes());
    bytes
}

/// A request over Homa: 60 bytes, and where a tag stands these.
fn request_of_homa(port: u16, tag: [u8; 8]) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..2].copy_from_slice(&40_000_u16.to_be_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&tag[..4]);
    bytes[8..14].copy_from_slice(&[4, tag[4], tag[5], 0x10, 0xe0, 6]);
    bytes[16..20].copy_from_slice(&[tag[6], tag[7], 0xb9, 0x7d]);
    bytes[20..28].copy_from_slice(&0x0102_0304_0500_0002_u64.to_be_bytes());
    (bytes[31], bytes[35], bytes[49]) = (4, 4, 0x80);
    bytes
}

#[test]
fn clients_follow_without_being_told_and_who_shows_no_cookie_is_not_served() {
    let calls = with_server(AskCookies::Always, |address| {
        let client =
            ClientBuilder::new().timeout(Duration::from_secs(20)).connect(address).unwrap();
        for len in [0, 100, 5_000, 100_000] {
            let bytes = vec![7; len];
            assert_eq!(*client.call(&bytes).expect("an answer"), bytes);
        }
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut buffer = [0; 2048];
        let mut cookie = 0;
        for _ in 0..3 {
            // It hears its cookie, and knows no better than to send that back.
            stranger.send_to(&request(cookie), address).unwrap();
            let len = stranger.recv(&mut buffer).unwrap();
            assert_eq!((len, buffer[2] >> 4, buffer[20]), (84, 3, 0x40), "an ACK with a cookie");
            cookie = u64::from_be_bytes(*buffer[32..].first_chunk().unwrap());
            assert_ne!(cookie, 0);
        }
    });
    assert_eq!(calls, 4);
}

#[test]
fn clients_of_homa_follow_too_and_who_bears_no_tag_is_not_served() {
    let calls = with_server_of(Protocol::Homa, AskCookies::Always, |address| {
        let builder = ClientBuilder::new().protocol(Protocol::Homa);
        let client = builder.timeout(Duration::from_secs(20)).connect(address).unwrap();
        for len in [0, 100, 5_000, 100_000, 3_000_000] {
            let bytes = vec![7; len];
            assert_eq!(*client.call(&bytes).expect("an answer"), bytes);
        }
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut buffer, mut cookie) = ([0; 2048], [0; 8]);
        for _ in 0..3 {
            // It hears its cookie, and knows no better than to send that back.
            stranger.send_to(&request_of_homa(address.port(), cookie), address).unwrap();
            let len = stranger.recv(&mut buffer).unwrap();
            assert_eq!((len, buffer[11], buffer[36]), (37, 0x1f, 1), "a COOKIE that demands a tag");
            cookie.copy_from_slice(&buffer[28..36]);
            assert_ne!(cookie, [0; 8]);
        }
    });
    assert_eq!(calls, 5);
}

#[test]
fn without_load_none_are_asked_for_if_that_is_how_it_is_configured() {
    let calls = with_server(AskCookies::UnderLoad, |address| {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stranger.send_to(&request(0), address).unwrap();
        let mut buffer = [0; 2048];
        stranger.recv(&mut buffer).unwrap();
        assert_eq!(buffer[2] >> 4, 1, "a reply");
    });
    assert_eq!(calls, 1);
}

#[test]
fn where_they_would_mean_nothing_they_are_refused() {
    let opened = |builder: ServerBuilder| {
        let error = builder.cookies(AskCookies::Always).bind("127.0.0.1:0").unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error:?}");
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
    };
    let text = "tailcut-keys 1\nrole server\ngroup test\ncipher aes-128-gcm\nkey 1 0 ";
    let keys: sealed::Keys = format!("{text}{}\n", "07".repeat(32)).parse().unwrap();
    let sealed = opened(ServerBuilder::new().seal(keys));
    assert!(sealed.contains("need no cookies"), "{sealed}");
}
