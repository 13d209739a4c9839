//! Ten thousand sealed clients, whose keys rotate while they call.

use tailcut_proto::node::Time;
use tailcut_sim::r2p2::{Experiment, Rotation, run};

use super::r2p2::{plan, times};

/// Each client begins a session under the new key with its next call. By the second rotation the
/// first key is none any more, so that who had not changed would not be answered.
#[test]
fn no_call_is_lost_by_rotations_under_load_and_none_takes_much_longer() {
    let sealed = |at_ns| {
        let experiment = Experiment {
            clients: 10_000,
            workers: 16,
            policy: Some("jbsq:32".parse().unwrap()),
            service: times("exp:200us"),
            calls: 100_000,
            seal: Some(Rotation { at_ns }),
            ..plan()
        };
        let findings = run(&experiment).expect("an experiment");
        assert_eq!(
            findings.counts.replied, findings.counts.sent,
            "none is lost: {:?}",
            findings.counts
        );
        assert!(findings.elapsed_ns > 2 * ROTATES_AT_NS, "{}", findings.elapsed_ns);
        findings
    };
    let (steady, rotated) = (sealed(Time::MAX), sealed(ROTATES_AT_NS));
    for quantile in [0.5, 0.99, 0.999] {
        let [before, after] =
            [&steady, &rotated].map(|findings| findings.latencies.percentile(quantile));
        assert!(after < 1.5 * before, "{quantile}: {after} of {before}");
    }
}

/// In the midst of the load, which lasts for 0.6 s.
const ROTATES_AT_NS: u64 = 300_000_000;
