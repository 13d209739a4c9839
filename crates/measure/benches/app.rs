//! Cost of one request and its reply in what applications say alone: writing the one and finding
//! the end of the other, over 64 connections in turn, without sockets.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tailcut_measure::app::{App, Carrier, Replies, Requests, Setting};
use tailcut_measure::generator::generator;

fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request and reply");
    let value = "v".repeat(200);
    let binary =
        format!("\0\0\0\0\u{4}\0\0\0\0\0\0\u{4c}\0\0\0\0\0\0\0\0\0\0\0\0flag{}", &value[..72])
            .into_bytes();
    let ascii = format!("VALUE 123...........................  0 200\r\n{value}\r\nEND\r\n")
        .replace("  ", " ")
        .into_bytes();
    let http = format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 22 Nov 2026 04:00:00 GMT\r\nContent-Type: text/html\r\n\
         Content-Length: 200\r\nLast-Modified: Sun, 22 Nov 2026 03:00:00 GMT\r\nConnection: keep-alive\r\n\
         ETag: \"63a1d2c4-264\"\r\nAccept-Ranges: bytes\r\n\r\n{value}"
    );
    let bulk = format!("$200\r\n{value}\r\n").into_bytes();
    let cases: [(&str, Vec<u8>); 8] = [
        ("echo:64", vec![b'x'; 64]),
        ("synthetic:exp:10us", vec![0; 8]),
        ("memcached-binary:keys=1M,get=1", binary.clone()),
        ("memcached-binary:keys=1M,etc,pick=zipf:0.99,get=1", binary),
        ("memcached-ascii:keys=1M,get=1", ascii),
        ("redis:keys=1M,get=1", bulk.clone()),
        ("redis:keys=1M,etc,pick=zipf:0.99,get=1", bulk),
        ("http:GET:/index.html", http.into_bytes()),
    ];
    for (text, reply) in cases {
        let app = App::parse(text).expect("it is an application");
        group.bench_function(BenchmarkId::from_parameter(text), |bencher| {
            let mut load = Load::new(&app, reply.clone());
            bencher.iter(|| load.exchange());
        });
    }
    group.finish();
}

/// A load thread without its sockets.
struct Load {
    requests: Requests,
    connections: Vec<Replies>,
    next: usize,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// True if the reply repeats the request's opaque word.
    is_binary: bool,
}

impl Load {
    fn new(app: &App, mut reply: Vec<u8>) -> Self {
        let setting =
            Setting { carrier: Carrier::Stream, authority: "localhost:80", is_tls: false };
        let requests = Requests::new(app, setting, generator(1, 0)).expect("a stream carries it");
        let is_binary = app.name() == "memcached-binary";
        if is_binary {
            reply[0] = 0x81;
        }
        Self {
            requests,
            connections: (0..64).map(|_| Replies::new(app)).collect(),
            next: 0,
            request: Vec::with_capacity(4096),
            reply,
            is_binary,
        }
    }

    fn exchange(&mut self) {
        self.request.clear();
        let expected = self.requests.write(&mut self.request);
        black_box(&self.request);
        if self.is_binary {
            self.reply[12..16].copy_from_slice(&(expected.tag as u32).to_be_bytes());
        }
        self.next = (self.next + 1) % self.connections.len();
        let mut bytes = &self.reply[..];
        let step = self.connections[self.next].take(&mut bytes, Some(expected));
        assert!(matches!(step, Ok(Some(_))) && bytes.is_empty(), "{step:?}");
    }
}

criterion_group!(benches, exchange);
criterion_main!(benches);
