//! Long messages over real sockets with the buffers that Linux gives by default: credit keeps them
//! from overrunning.

use std::net::SocketAddr;

use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::r2p2::{Config, Endpoint};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};

/// An endpoint whose buffers are half of `net.core.rmem_default`: the kernel doubles what it is
/// asked for.
fn endpoint(secret: u8) -> Driver<Endpoint> {
    let buffers = UdpConfig {
        receive_buffer_bytes: 106_496,
        send_buffer_bytes: 106_496,
        ..UdpConfig::default()
    };
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), buffers).unwrap();
    let credit_bytes = port.receive_buffer_bytes().unwrap() / 2;
    let mut driver = Driver::new(Wait::BusyPoll).unwrap();
    // Both ends are one thread: what it is kept off its core for is no lost packet.
    let timeout_ns = 1_000_000_000;
    let config = Config {
        secret: [secret; 16],
        credit_bytes,
        rto_initial_ns: timeout_ns,
        rto_min_ns: timeout_ns,
        rto_max_ns: timeout_ns,
        ..Config::default()
    };
    let node = Endpoint::new(driver.clock().now(), config);
    driver.add(node, port, None);
    driver
}

fn call(client: &mut Driver<Endpoint>, target: SocketAddr, payload: Vec<u8>) {
    let now = client.clock().now();
    let call = Call {
        target,
        payload,
        deadline: now + 20_000_000_000,
        context: 0,
        options: CallOptions::default(),
    };
    client.node_mut(0).call(now, call).unwrap();
}

#[test]
fn messages_of_a_mebibyte_do_not_overrun_default_buffers() {
    let (mut client, mut server) = (endpoint(1), endpoint(2));
    let target = server.port(0).local_address();
    for round in 0..8 {
        let request: Vec<u8> =
            (0..1 << 20).map(|place: u32| (place.wrapping_mul(31) + round) as u8).collect();
        call(&mut client, target, request.clone());
        let mut reply = None;
        while reply.is_none() {
            let echo = |_, node: &mut Endpoint, now| {
                while let Some(event) = node.poll_event() {
                    if let Event::Request { id, payload, .. } = event {
                        node.reply(now, id, payload).unwrap();
                    }
                }
            };
            server.turn_with(echo).unwrap();
            let take = |_, node: &mut Endpoint, _| {
                while let Some(event) = node.poll_event() {
                    match event {
                        Event::Replied { payload, .. } => reply = Some(payload),
                        other => panic!("{other:?}"),
                    }
                }
            };
            client.turn_with(take).unwrap();
        }
        assert_eq!(reply, Some(request));
    }
    for driver in [&client, &server] {
        assert_eq!(driver.port(0).kernel_drops().unwrap(), 0, "the socket's buffer was overrun");
    }
}
