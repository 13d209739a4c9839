//! Servers with a policy of who may call what.

use super::*;

/// As [`net`], where the server has this policy, in which client 17 is the only one that calls.
fn guarded(is_routed: bool, rules: &str) -> Net {
    let mut net = net(is_routed);
    let seal = sealing(&net.keys, Role::Server).unwrap();
    let seal = Some(Sealing { access: Some(policy(rules)), ..seal });
    net.now += 2 * MS;
    net.server = Endpoint::new(net.now, Config { secret: [4; 16], seal, ..Config::default() });
    net.now += 2 * MS;
    net
}

fn policy(rules: &str) -> Arc<Access> {
    Arc::new(format!("tailcut-access 1\n{rules}").parse().unwrap())
}

/// A request of a typed service, of so many bytes.
fn typed(path: &str, len: usize) -> Vec<u8> {
    let mut bytes = [&[METHOD_VERSION][..], &method_number(path).to_be_bytes()].concat();
    bytes.resize(len.max(bytes.len()), 5);
    bytes
}

const DENIED: Failure = Failure::Rejected { code: DENIED_CODE };

#[test]
fn what_is_not_allowed_is_rejected_and_never_runs() {
    for is_routed in [false, true] {
        let mut net = guarded(is_routed, "allow 17 /a.B/C");
        // The call that finds out who is there.
        let _ = net.call(&typed("/a.B/C", 9));
        let runs = net.runs;
        for len in [9, 2_000, 300_000] {
            assert_eq!(net.call(&typed("/a.B/D", len)), Err(DENIED), "{len} B");
            let allowed = typed("/a.B/C", len);
            assert_eq!(net.call(&allowed), Ok(allowed.clone()), "{len} B");
        }
        assert_eq!(net.runs, runs + 3);
        let metrics = net.server.metrics();
        assert_eq!((metrics.seal.denied, net.server.denials().0), (3, 3));
        assert_eq!(metrics.common.drops[DropReason::Application as usize], 3);
        let denial = net.server.denials().1.expect("the last of them");
        assert_eq!(
            (denial.client, &denial.called),
            (17, &Called::Numbered(method_number("/a.B/D")))
        );
        assert_eq!(net.server.holdings().waiting + net.server.holdings().partials, 0);
        // A long message that is denied is not received: its first packets alone go.
        let denied = net.log.iter().filter(|sent| sent.to == at(SERVER)).count();
        assert!(denied < 2 * 300_000 / 1_000, "{denied}");
    }
}

/// The rejection says why, as a server that knows the client's number tells it.
#[test]
fn a_rejection_says_whom_and_what() {
    let mut net = guarded(false, "allow 18 *");
    let until = net.now + 100 * MS;
    net.begin(b"bytes");
    let mut text = None;
    while text.is_none() && net.now < until {
        let mut under_way = VecDeque::new();
        net.collect(&mut under_way);
        under_way.into_iter().for_each(|sent| {
            let path = Path { local: None, peer: sent.from };
            let mut bytes = sent.bytes;
            match sent.to == at(SERVER) {
                true => net.server.handle_datagram(net.now, path, &mut bytes),
                false => net.client.handle_datagram(net.now, path, &mut bytes),
            }
        });
        while let Some(event) = net.client.poll_event() {
            let Event::Failed { text: words, .. } = event else { panic!("{event:?}") };
            text = Some(String::from_utf8(words).unwrap());
        }
        net.now += MS / 10;
        net.client.handle_timeout(net.now);
    }
    let expected =
        "the server's access policy: client 17 may not call by bytes that name no method";
    assert_eq!(text.as_deref(), Some(expected));
}

/// Lost packets of a rejection are asked for again, and each call ends once.
#[test]
fn denied_calls_end_where_packets_are_lost() {
    for is_routed in [false, true] {
        let mut net = guarded(is_routed, "allow 17 /a.B/C\ndeny 17 *");
        net.loss = 5;
        for len in [9, 5_000] {
            for _ in 0..40 {
                let ended = net.call(&typed("/a.B/C", len));
                assert!(ended.is_err(), "{ended:?}");
            }
        }
        assert_eq!((net.runs, net.ended.len()), (0, 80));
        assert!(net.server.metrics().seal.denied >= 80);
    }
}

#[test]
fn a_policy_that_changes_holds_for_requests_that_begin_then() {
    let mut net = guarded(false, "allow any *");
    let runs = |net: &mut Net| net.call(b"bytes").is_ok();
    assert!(runs(&mut net));
    net.server.update_access(&policy("deny 17 *\nallow any *"));
    assert!(!runs(&mut net));
    net.server.update_access(&policy("allow 17 *"));
    assert!(runs(&mut net));
    // A server that has none is not given one.
    let mut open = super::net(false);
    open.server.update_access(&policy("deny any *"));
    assert!(runs(&mut open));
}
