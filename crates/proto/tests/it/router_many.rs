//! A router over as many servers as it takes: the work of what happens at one of them does not grow
//! with their number.

use tailcut_proto::router::Speaks;

use super::router_bench::{Ask, Bench, FakeServer, MS, client, server};

/// With so many servers, each of which gets a request a millisecond and answers its probes.
fn looks_per_event(count: u16) -> f64 {
    let mut bench = Bench::new(Speaks::Extension, count, |config| {
        config.policy = "rr".parse().unwrap();
        config.servers_max = count.into();
    });
    let mut servers: Vec<_> = (0..count).map(FakeServer::new).collect();
    let (mut id, mut events) = (0, 0);
    let before = bench.metrics().server_looks;
    for _ in 0..20 {
        let mut sent = bench.advance(MS);
        for _ in 0..count {
            id += 1;
            sent.extend(bench.send(client(), &Ask { deadline_us: 20_000, ..Ask::id(id) }.bytes()));
        }
        for sent in sent {
            let index = sent.to.port() - server(0).port();
            let server = &mut servers[usize::from(index)];
            let answer = server.take(&sent.bytes).unwrap_or_else(|| server.conclude(1));
            bench.send(sent.to, &answer);
            events += 1;
        }
    }
    assert_eq!(bench.metrics().forwarded, id);
    (bench.metrics().server_looks - before) as f64 / f64::from(events)
}

#[test]
fn the_looks_at_servers_for_each_event_do_not_grow_with_the_servers() {
    let [few, many] = [4, 1024].map(looks_per_event);
    assert!(few < 1.0 && many < 1.1 * few, "{few} looks an event of 4 servers, {many} of 1,024");
}

#[test]
fn what_is_refused_for_want_of_servers_looks_at_none() {
    let mut bench = Bench::new(Speaks::Extension, 64, |_| {});
    for index in 0..64 {
        bench.router.drain_server(bench.now, server(index)).unwrap();
    }
    let before = bench.metrics().server_looks;
    for id in 1..1000 {
        assert_eq!(bench.send(client(), &Ask::id(id).bytes()).len(), 1, "a DROP");
    }
    assert_eq!(bench.metrics().server_looks, before);
}
