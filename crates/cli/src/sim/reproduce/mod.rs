//! `tailcut sim reproduce`: published figures, simulated again, with a verdict on each value.
//!
//! A reproduction is a function from an [`Effort`] to a [`Figure`]. Its expected values are exact
//! where there is a closed form, or published; each has the tolerance that its own error allows,
//! and says in its module where it is from.

mod bound;
mod chip;
mod cloning;
mod effort;
mod figure;
mod homa;
mod homa_short;
mod laedge;
mod netclone;
mod queues;
mod racksched;
mod replication;
mod search;
mod verdict;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::effort::Effort;
use self::figure::Figure;
use self::verdict::Verdict;
use super::Outcome;

/// Simulate published figures again, and compare
///
/// Writes NAME.csv and NAME.svg for each figure, prints a table of verdicts, and fails when one of
/// them does.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The figure, or `all`
    #[arg(value_name = "NAME")]
    name: String,
    /// Directory of CSV and SVG files
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// A sixteenth of the requests, and so tolerances that are four times as wide
    #[arg(long)]
    quick: bool,
    /// Seed of the first run of each point
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let effort = if args.quick { Effort::quick(args.seed) } else { Effort::full(args.seed) };
    let chosen: Vec<&Reproduction> =
        REPRODUCTIONS.iter().filter(|it| args.name == "all" || args.name == it.name).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = REPRODUCTIONS.iter().map(|it| it.name).collect();
        bail!("no figure is called {}; there are {} and all", args.name, names.join(", "));
    }
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the directory {}", args.out.display()))?;
    let (mut json, mut text, mut verdicts) = (Vec::new(), String::new(), Vec::new());
    for Reproduction { name, about, run } in chosen {
        let figure = run(effort).with_context(|| format!("{name} cannot be simulated"))?;
        for (ending, content) in [("csv", figure.csv()), ("svg", figure.svg(name))] {
            let path = args.out.join(format!("{name}.{ending}"));
            fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        json.push(json!({
            "name": name,
            "about": about,
            "verdicts": figure.verdicts.iter().map(Verdict::json).collect::<Vec<_>>(),
        }));
        text += &format!("{name}: {about}\n\n{}\n", verdict::table(&figure.verdicts));
        verdicts.extend(figure.verdicts);
    }
    Ok(Outcome {
        json: document(args, effort, json),
        failure: failure(&verdicts),
        text: text + &summary(args, &verdicts),
    })
}

fn document(args: &Args, effort: Effort, figures: Vec<Value>) -> Value {
    json!({
        "schema": "tailcut.sim.reproduce/1",
        "config": { "name": args.name, "quick": args.quick, "seed": args.seed, "widening": effort.widening() },
        "figures": figures,
    })
}

fn summary(args: &Args, verdicts: &[Verdict]) -> String {
    let judged = || verdicts.iter().filter(|verdict| verdict.is_judged());
    let passed = judged().filter(|verdict| verdict.passes()).count();
    format!("{passed} of {} verdicts pass; curves: {}\n", judged().count(), args.out.display())
}

fn failure(verdicts: &[Verdict]) -> Option<String> {
    let failed: Vec<&str> = verdicts
        .iter()
        .filter(|verdict| !verdict.passes())
        .map(|verdict| verdict.what.as_str())
        .collect();
    (!failed.is_empty()).then(|| format!("not reproduced: {}", failed.join("; ")))
}

/// A published figure.
struct Reproduction {
    name: &'static str,
    about: &'static str,
    run: fn(Effort) -> Result<Figure>,
}

const REPRODUCTIONS: [Reproduction; 18] = [
    Reproduction {
        name: "rpcvalet-queues",
        about: "queues before 16 workers: exact figures, policies, and the load that keeps a p99 of 10 services",
        run: queues::figure,
    },
    Reproduction {
        name: "rpcvalet-chip",
        about: "RPCValet's chip: throughput under its SLO, and the tail",
        run: chip::figure,
    },
    Reproduction {
        name: "jbsq-bound",
        about: "R2P2's router: the load that keeps a p99 of 10 services, by bound and delay",
        run: bound::figure,
    },
    Reproduction {
        name: "netclone-exp25",
        about: "NetClone and what it is compared with, exponential services of 25 us",
        run: netclone::exponential,
    },
    Reproduction {
        name: "netclone-bimodal",
        about: "NetClone with bimodal services, where nobody waits",
        run: netclone::bimodal,
    },
    Reproduction {
        name: "laedge",
        about: "LAEDGE's coordinator, with a slot for each server and for each worker",
        run: laedge::figure,
    },
    Reproduction {
        name: "racksched-hetero",
        about: "RackSched where servers differ, over random placement",
        run: racksched::figure,
    },
    Reproduction {
        name: "replication-threshold",
        about: "the load up to which sending every request twice helps",
        run: replication::figure,
    },
    Reproduction {
        name: "homa-w1",
        about: "W1 at a load of 0.8: Homa, plain messages, streams, and the bound",
        run: homa::w1,
    },
    Reproduction {
        name: "homa-w2",
        about: "W2 at a load of 0.8: Homa, plain messages, streams, and the bound",
        run: homa::w2,
    },
    Reproduction {
        name: "homa-w3",
        about: "W3 at a load of 0.8 against the published curve, and the same messages by others",
        run: homa::w3,
    },
    Reproduction {
        name: "homa-w4",
        about: "W4 at a load of 0.8 against the published curve, and the same messages by others",
        run: homa::w4,
    },
    Reproduction {
        name: "homa-w5",
        about: "W5 at a load of 0.8: Homa, plain messages, streams, and the bound",
        run: homa::w5,
    },
    Reproduction {
        name: "homa-priorities",
        about: "Homa on W3 with 1, 2, 4 and 8 priorities",
        run: homa::priorities,
    },
    Reproduction {
        name: "homa-overcommitment",
        about: "Homa on W4 with one message granted at a time, and with seven",
        run: homa::overcommitment,
    },
    Reproduction {
        name: "homa-basic",
        about: "Homa's echoes without priorities and without a limit of messages at once",
        run: homa::basic,
    },
    Reproduction {
        name: "homa-single-switch",
        about: "Homa's echoes between 8 clients and 8 servers at one switch",
        run: homa::single_switch,
    },
    Reproduction {
        name: "homa-short-packets",
        about: "Homa on W3 and W4 with packets of half the length, over as published",
        run: homa_short::figure,
    },
];

const AFTER_HELP: &str = "\
Figures:
  rpcvalet-queues        queues before 16 workers: exact values, policies, and the load that keeps a p99 of 10 services
  rpcvalet-chip          RPCValet's chip: throughput under its SLO, and the tail
  jbsq-bound             R2P2's router: the load that keeps a p99 of 10 services, by bound and delay
  netclone-exp25         NetClone and others with exponential services of 25 us
  netclone-bimodal       NetClone at no load with bimodal services
  laedge                 LAEDGE's coordinator
  racksched-hetero       RackSched with servers of unequal size
  replication-threshold  the load up to which replication helps
  homa-w1 ... homa-w5    the five workloads of Homa's paper at a load of 0.8, beside others and the bound
  homa-priorities        Homa with 1, 2, 4 and 8 priorities
  homa-overcommitment    Homa with one message granted at a time, and with seven
  homa-basic             Homa without priorities and without a limit of messages at once
  homa-single-switch     Homa's echoes between 8 clients and 8 servers
  homa-short-packets     Homa with packets of half the length, over as published

Examples:
  tailcut sim reproduce jbsq-bound --quick
  tailcut sim reproduce all --out target/reproduced --json target/reproduced.json";

#[cfg(test)]
mod tests {
    use super::verdict::{Basis, Tolerance};
    use super::*;

    /// In one line of the help, `homa-w1 ... homa-w5`.
    const LISTED_TOGETHER: [&str; 4] = ["homa-w2", "homa-w3", "homa-w4", "homa-w5"];

    #[test]
    fn the_help_names_every_figure() {
        for Reproduction { name, .. } in REPRODUCTIONS {
            let is_listed =
                AFTER_HELP.contains(&format!("\n  {name} ")) || LISTED_TOGETHER.contains(&name);
            assert!(is_listed, "{name}");
        }
    }

    #[test]
    fn a_verdict_that_fails_fails_the_command_and_one_that_is_shown_does_not() {
        let verdict = |what: &str, tolerance| {
            Verdict::fixed(what.to_owned(), (Basis::Exact, 2.0), 3.0, tolerance)
        };
        let shown = verdict("shown", Tolerance::Shown);
        assert_eq!(failure(std::slice::from_ref(&shown)), None);
        let failed = [
            shown,
            verdict("p99", Tolerance::Absolute(0.5)),
            verdict("mean", Tolerance::Absolute(1.5)),
        ];
        assert_eq!(failure(&failed), Some("not reproduced: p99".to_owned()));
    }
}
