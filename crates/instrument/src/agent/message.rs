//! Messages between coordinator and agent, and the bodies of frames that carry them.
//!
//! The first byte of an agent's body says what follows: JSON for what is rare, varints for slices
//! and counts.
//!
//! Invariant: a body that is no message is an error and nothing else, and no text in a message
//! reaches a terminal with control characters.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tailcut_measure::codec::{
    Reader, put, put_number, put_numbers, put_slice, put_stamps, read_slice, read_stamps,
};

use crate::job::{AgentEvent, Job};
use crate::result::Host;

/// Message of a coordinator.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Order {
    /// Answer at once; what was sent comes back. It is a sign of life, and it measures the agent's
    /// clock.
    Ping {
        sent_ns: u64,
    },
    /// The job of this number.
    Prepare {
        number: u64,
        job: Box<Job>,
    },
    /// Begin when the agent's clock shows this.
    Start {
        at_ns: u64,
    },
    Connections(u32),
    Stop,
}

impl Order {
    pub(super) fn put(&self, body: &mut Vec<u8>) {
        serde_json::to_writer(body, self).expect("an order has no maps and no failing parts");
    }

    pub(super) fn read(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body).context("it is no order")
    }
}

/// Message of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Report {
    Pong {
        sent_ns: u64,
        /// Time on the agent's clock, ns.
        agent_ns: u64,
    },
    /// About the job of this number; 0 is for what is about none.
    Event { number: u64, told: AgentEvent },
}

impl Report {
    pub(super) fn put(&self, body: &mut Vec<u8>) {
        match self {
            Self::Event { number, told: AgentEvent::Slice { thread, slice } } => {
                body.push(SLICE);
                put_numbers(&[*number, u64::from(*thread)], body);
                put_slice(slice, body);
            }
            Self::Event { number, told: AgentEvent::Client { client, stamps, stamped } } => {
                body.push(CLIENT);
                put_number(*number, body);
                put(client, body);
                put_stamps(stamps, stamped, body);
            }
            rare => {
                body.push(RARE);
                serde_json::to_writer(body, rare).expect("it has no maps and no failing parts");
            }
        }
    }

    pub(super) fn read(body: &[u8]) -> Result<Self> {
        let Some((&kind, rest)) = body.split_first() else { bail!("it is empty") };
        if kind == RARE {
            return Ok(serde_json::from_slice::<Self>(rest)
                .context("it is no report")?
                .printable());
        }
        let mut reader = Reader::new(rest);
        let number = reader.number()?;
        let told = match kind {
            SLICE => {
                let thread = reader.number_up_to(u64::from(u32::MAX))? as u32;
                AgentEvent::Slice { thread, slice: read_slice(&mut reader)? }
            }
            CLIENT => {
                let client = reader.counts::<_, 22>()?;
                let (stamps, stamped) = read_stamps(&mut reader)?;
                AgentEvent::Client { client, stamps, stamped }
            }
            _ => bail!("there is no report of kind {kind}"),
        };
        reader.finish()?;
        Ok(Self::Event { number, told })
    }

    fn printable(mut self) -> Self {
        match &mut self {
            Self::Event { told: AgentEvent::Ready { host, .. }, .. } => {
                *host = printable_host(host);
            }
            Self::Event { told: AgentEvent::Failed(why), .. } => *why = printable(why),
            _ => {}
        }
        self
    }
}

/// A text as it may be shown: without control characters, and not long.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_LEN_MAX).collect()
}

fn printable_host(host: &Host) -> Host {
    let Host { name, cpu, cores, kernel, governor, interface } = host;
    Host {
        name: printable(name),
        cpu: printable(cpu),
        cores: *cores,
        kernel: printable(kernel),
        governor: governor.as_deref().map(printable),
        interface: interface.as_deref().map(printable),
    }
}

const RARE: u8 = 0;
const SLICE: u8 = 1;
const CLIENT: u8 = 2;

const TEXT_LEN_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailcut_measure::slices::Slice;
    use tailcut_measure::stamps::{Latencies, MatchCounts};
    use tailcut_measure::statistics::series::Timed;

    use super::*;
    use crate::agent::tests::job;
    use crate::clones::CloneCounts;
    use crate::host_load::CpuCounts;
    use crate::job::{ClientCounts, StampKind};
    use crate::packet_drops::DropCounts;

    fn check_order(order: &Order) {
        let mut body = Vec::new();
        order.put(&mut body);
        assert_eq!(&Order::read(&body).unwrap(), order);
    }

    /// Event about job 7, after it was sent.
    fn sent(told: AgentEvent) -> AgentEvent {
        let mut body = Vec::new();
        Report::Event { number: 7, told }.put(&mut body);
        match Report::read(&body).unwrap() {
            Report::Event { number: 7, told } => told,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn orders_are_read_as_they_were_sent() {
        check_order(&Order::Ping { sent_ns: u64::MAX });
        check_order(&Order::Prepare { number: 3, job: Box::new(job()) });
        check_order(&Order::Start { at_ns: 5 });
        check_order(&Order::Connections(16));
        check_order(&Order::Stop);
    }

    #[test]
    fn what_is_told_arrives() {
        let slice = Slice {
            index: 3,
            samples: vec![Timed { intended_ns: 5, latency_ns: 6, late_ns: 7 }],
            ..Slice::default()
        };
        let told = sent(AgentEvent::Slice { thread: 2, slice: slice.clone() });
        assert!(
            matches!(told, AgentEvent::Slice { thread: 2, slice: arrived } if arrived == slice)
        );

        let client = ClientCounts {
            reconnects: 1,
            mismatched: 2,
            saturated: 3,
            resent: 4,
            sleeps: 5,
            icmp_errors: 6,
            kernel_drops: 7,
            clones: CloneCounts { sent: 8, won: 9, ..CloneCounts::default() },
            cpu: CpuCounts { ran_us: 10, pressed_us: 15, ..CpuCounts::default() },
            host_drops: DropCounts { interfaces: 16, backlog: 17, sockets: 18 },
        };
        let counts = MatchCounts { requests: 9, ..MatchCounts::default() };
        let stamped =
            vec![Latencies { user_ns: Some(2_000), kernel_ns: Some(1_000), hardware_ns: None }];
        let told = sent(AgentEvent::Client { client, stamps: counts, stamped: stamped.clone() });
        let AgentEvent::Client { client: client_arrived, stamps, stamped: stamped_arrived } = told
        else {
            panic!("{told:?}")
        };
        assert_eq!((client_arrived, stamps, stamped_arrived), (client, counts, stamped));

        let host = Host {
            name: "load-1".to_owned(),
            cores: 2,
            governor: Some("performance".to_owned()),
            ..Host::default()
        };
        let told = sent(AgentEvent::Ready { host: host.clone(), stamps: StampKind::Kernel });
        assert!(
            matches!(told, AgentEvent::Ready { host: arrived, stamps: StampKind::Kernel } if arrived == host)
        );
        assert!(matches!(sent(AgentEvent::Done), AgentEvent::Done));
    }

    #[test]
    fn a_text_from_elsewhere_does_not_drive_the_terminal() {
        let told = sent(AgentEvent::Failed("\u{1b}[2Jno\nsuch host".to_owned()));
        assert!(matches!(told, AgentEvent::Failed(why) if why == " [2Jno such host"));
    }

    #[test]
    fn what_is_more_than_a_message_is_refused() {
        let mut body = Vec::new();
        Report::Event { number: 7, told: AgentEvent::Slice { thread: 0, slice: Slice::default() } }
            .put(&mut body);
        body.push(0);
        assert!(Report::read(&body).is_err());
        assert!(Report::read(&[9, 1]).is_err());
        let client = ClientCounts { kernel_drops: u64::MAX, ..ClientCounts::default() };
        let told =
            AgentEvent::Client { client, stamps: MatchCounts::default(), stamped: Vec::new() };
        body.clear();
        Report::Event { number: 7, told }.put(&mut body);
        assert!(Report::read(&body).is_err());
        assert!(Order::read(br#"{"run":"sh"}"#).is_err());
        assert!(Order::read(&[b'['; 1 << 16]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..4_u8) {
            let _ = Order::read(&bytes);
            let _ = Report::read(&[&[kind], bytes.as_slice()].concat());
        }
    }
}
