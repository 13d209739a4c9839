//! Probe of the timestamps that arrive, by requests to the target before the load.

use std::sync::OnceLock;

use tailcut_measure::app::{Conversation, Requests};
use tailcut_measure::generator::generator;
use tailcut_net::datagram::{DatagramConfig, Datagrams};
use tailcut_net::driver::Wait;
use tailcut_net::probe::{Arrived, Probe, Speaker};
use tailcut_net::stamps::{StampConfig, Stamping};
use tailcut_net::stream::TlsClient;

use super::calls;
use super::plan::Plan;
use super::stamped::Found;
use crate::job::{Credentials, Transport};

/// A socket that asks for stamps, so that those of receives have begun and go on until the load's
/// own sockets ask for them.
pub(super) struct Held {
    _datagrams: Option<Datagrams>,
}

/// Stamps that arrive, shared by the threads of an agent: the first that asks probes for all.
pub(super) fn find(
    plan: &Plan,
    tls: Option<&TlsClient>,
    shared: &OnceLock<Found>,
) -> (Found, Held) {
    // Version 1 numbers its calls otherwise than their ids do.
    // Nor does the kernel stamp what goes over a Unix socket.
    if plan.job.stamp_every == 0 || plan.job.r2p2.v1 || plan.unix.is_some() {
        return (Found::default(), Held { _datagrams: None });
    }
    let held = Held { _datagrams: hold(plan) };
    let found = *shared.get_or_init(|| {
        // A target that cannot be probed cannot be loaded either, and opening the connections says
        // why.
        probe(plan, tls).map_or(Found::default(), |arrived| Found::of(arrived, plan.source))
    });
    (found, held)
}

fn hold(plan: &Plan) -> Option<Datagrams> {
    let stamps = StampConfig { stamping: Stamping::Kernel, source: plan.source };
    let mut datagrams =
        Datagrams::new(Wait::default(), DatagramConfig { stamps, ..DatagramConfig::default() })
            .ok()?;
    datagrams.open(plan.lanes.first()?.target).ok()?;
    Some(datagrams)
}

fn probe(plan: &Plan, tls: Option<&TlsClient>) -> Option<Arrived> {
    let target = plan.lanes.first()?.target;
    let mut requests =
        Requests::new(&plan.app, plan.setting(), generator(plan.job.seed, plan.request_stream()))
            .ok()?;
    let mut request = Vec::new();
    requests.write(&mut request);
    let probe = Probe {
        target,
        request: &request,
        wait_ns: PROBE_NS,
        interval_ns: PROBE_EVERY_NS.max(plan.gap_ns()),
        source: plan.source,
    };
    match (plan.job.transport, tls) {
        (Transport::Tls, None) => None,
        (Transport::Tls | Transport::Tcp, tls) => {
            let conversation = Conversation::new(&plan.app);
            let login = plan.job.login.as_ref();
            probe.connection(tls, &mut Asking { conversation, requests, login }).ok()
        }
        (Transport::Udp, _) => probe.datagrams().ok(),
        // A probe would be placed by the switch as any request.
        (Transport::NetClone, _) => None,
        (Transport::R2p2 | Transport::Homa | Transport::HomaIp | Transport::HomaTcp, _) => {
            calls::probe(plan, &probe).ok()
        }
    }
}

/// A connection over which the load's requests are asked again and again.
struct Asking<'a> {
    conversation: Conversation,
    requests: Requests,
    login: Option<&'a Credentials>,
}

impl Speaker for Asking<'_> {
    fn handle_connected(&mut self, out: &mut Vec<u8>) {
        self.conversation.begin(self.login.map(Credentials::login), out);
    }

    fn handle_bytes(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        // What it answers does not matter, as long as it does.
        while let Ok(Some(_)) = self.conversation.take(&mut bytes, out) {}
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        if self.conversation.has_room() {
            self.conversation.write(out, &mut |out| self.requests.write(out));
        }
    }
}

/// Stamps of receives begin up to some ten milliseconds after they were asked for.
const PROBE_NS: u64 = 200_000_000;

/// From one request of a probe to the next.
const PROBE_EVERY_NS: u64 = 10_000_000;
