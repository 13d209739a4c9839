//! A policy from outside: one file, as docs/adding-a-policy.md shows it, through the registry's own
//! types and in a router.

use tailcut_proto::router::Speaks;

use crate::router_bench::{Ask, Bench, FakeServer, MS};

/// The place of a file under policy/, with the same names in reach.
#[expect(unreachable_pub, reason = "a policy of the crate is public")]
mod policy {
    pub(super) use tailcut_proto::policy::*;

    pub(super) mod lowest_report;
}

use policy::lowest_report::LowestReport;

#[test]
fn a_policy_of_reported_loads_runs_in_a_router() {
    let mut bench = Bench::new(Speaks::Extension, 2, |config| config.policy = LowestReport::SPEC);
    let mut servers = [FakeServer::new(0), FakeServer::new(1)];
    servers[0].load = 7;
    servers[1].load = 2;
    let [first, second] = &mut servers;
    bench.live(&mut [first, second], 20 * MS);
    let reported: Vec<u32> =
        bench.router.status().servers.iter().map(|server| server.reported).collect();
    assert_eq!(reported, [7, 2]);
    // Without feedback the reports stay, so all go to one server.
    for id in 1..4 {
        assert_eq!(bench.place(&Ask::id(id).bytes()), Some(1));
    }
    servers[1].load = 9;
    bench.send(servers[1].addr, &servers[1].feedback());
    assert_eq!(bench.place(&Ask::id(4).bytes()), Some(0));
}

#[test]
fn its_entry_gives_its_text() {
    assert_eq!(LowestReport::SPEC.to_string(), "lowest-report");
    assert_eq!(LowestReport::SPEC.describe(), "the lowest report of all");
}

#[test]
fn the_page_shows_the_file_as_it_is() {
    let page = include_str!("../../../../../docs/adding-a-policy.md");
    assert!(
        page.contains(include_str!("policy/lowest_report.rs")),
        "docs/adding-a-policy.md is stale"
    );
}
