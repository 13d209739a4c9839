//! Services of Rust types, by each codec of serde.

use serde::{Deserialize, Serialize};
use tailcut::Server;
use tailcut_services::{
    Client, Code, Codec, Json, Metrics, Postcard, Prost, Request, Response, Services, Status,
};

use crate::calls::{blocking, word};
use crate::trial::Word;

/// Numbers to add up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sum {
    name: Option<String>,
    parts: Vec<i64>,
}

tailcut_services::service! {
    /// Adds up.
    service Adder = "test.Adder", server AdderServer, client AdderClient, codec Postcard;
    /// The sum of the parts, as the only one.
    add(Sum) -> Sum = "Add", idempotent;
}

/// A service whose messages are JSON.
mod json {
    use super::{Json, Sum};

    tailcut_services::service! {
        /// Adds up.
        service Adder = "test.JsonAdder", server AdderServer, client AdderClient, codec Json;
        /// The sum of the parts, as the only one.
        add(Sum) -> Sum = "Add";
    }
}

struct Calculator;

fn add(sum: Sum) -> Result<Response<Sum>, Status> {
    match sum.parts.iter().try_fold(0_i64, |sum, &part| sum.checked_add(part)) {
        Some(total) => Ok(Response::new(Sum { parts: vec![total], ..sum })),
        None => Err(Status::out_of_range("beyond 64 bits")),
    }
}

impl Adder for Calculator {
    async fn add(&self, request: Request<Sum>) -> Result<Response<Sum>, Status> {
        add(request.into_inner())
    }
}

impl json::Adder for Calculator {
    async fn add(&self, request: Request<Sum>) -> Result<Response<Sum>, Status> {
        add(request.into_inner())
    }
}

/// Runs `calls` before a server that has both services.
fn with_adders(calls: impl FnOnce(Client)) -> Metrics {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let services = Services::new()
        .add_service(AdderServer::new(Calculator))
        .add_service(json::AdderServer::new(Calculator));
    let mut server = Server::bind("127.0.0.1:0").expect("a server");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| services.serve(&mut server, runtime.handle()));
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            calls(blocking(address));
        }));
        stop.stop();
        thread.join().expect("the server does not panic").expect("a socket");
        called.expect("the calls go well");
    });
    services.metrics()
}

fn sum(parts: &[i64]) -> Sum {
    Sum { name: Some("all".to_owned()), parts: parts.to_vec() }
}

#[test]
fn two_services_of_one_server_have_a_codec_each() {
    let metrics = with_adders(|client| {
        let reply = AdderClient::new(client.start()).add(sum(&[1, 2, -5])).expect("a call");
        assert_eq!(reply.wait().expect("a sum").into_inner(), sum(&[-2]));
        let status = AdderClient::new(client.start()).add(sum(&[i64::MAX, 1])).expect("a call");
        assert_eq!(status.wait().expect_err("too much").code(), Code::OutOfRange);
        let reply = json::AdderClient::new(client).add(sum(&[1, 2, -5]));
        assert_eq!(reply.expect("a sum").into_inner(), sum(&[-2]));
    });
    assert_eq!((metrics.replied, metrics.failed), (2, 1));
}

/// Bytes that a codec makes of a message, which it reads back.
fn check<C: Codec<T>, T: PartialEq + std::fmt::Debug>(message: &T) -> Vec<u8> {
    let mut bytes = b"header".to_vec();
    C::encode(message, &mut bytes).expect("bytes");
    let bytes = bytes.strip_prefix(b"header").expect("what was there is kept");
    assert_eq!(&C::decode(bytes).expect("a message"), message);
    bytes.to_vec()
}

#[test]
fn a_message_is_in_the_words_of_its_format() {
    assert_eq!(check::<Json, _>(&sum(&[7])), br#"{"name":"all","parts":[7]}"#);
    // postcard 1.0: an option's byte, lengths as varints, and integers in zigzag.
    assert_eq!(check::<Postcard, _>(&sum(&[7])), [1, 3, b'a', b'l', b'l', 1, 14]);
    // Protocol Buffers: field 1, of a length.
    assert_eq!(check::<Prost, Word>(&word("all")), [0x0a, 3, b'a', b'l', b'l']);
}

#[test]
fn bytes_that_are_no_message_are_told() {
    for bytes in [&b""[..], b"\x01", b"\x00\x00left over"] {
        assert!(<Postcard as Codec<Sum>>::decode(bytes).is_err(), "{bytes:?}");
    }
    for bytes in [&b""[..], b"{", br#"{"name":null}"#, br#"{"name":null,"parts":[]}}"#] {
        assert!(<Json as Codec<Sum>>::decode(bytes).is_err(), "{bytes:?}");
    }
}

/// A value that JSON has no form for: a map whose keys are no text.
#[test]
fn a_value_that_the_format_cannot_hold_is_told() {
    let map = std::collections::BTreeMap::from([(vec![1_u8], 1)]);
    assert!(Json::encode(&map, &mut Vec::new()).is_err());
}
