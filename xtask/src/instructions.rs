//! `cargo xtask instructions`: what a call costs the state machines, in instructions and misses of
//! the first-level caches, counted by cachegrind.
//!
//! Counts are the same on every run, so that a change which makes calls dearer shows where times
//! would only scatter. They are of the build that CI tests, which is optimized but has the checks
//! of a debug build, and depend on the compiler: the record names it. Where the linker puts
//! functions depends on the path of the checkout too, and one cache evicts more of them or fewer by
//! that alone; so the misses of code are the mean over caches of several sizes.
//!
//! | against the record | then |
//! |---|---|
//! | instructions [`ROOM_PERCENT`] in a hundred above it, misses [`MISSES_PERCENT`] | refused |
//! | as much below it | refused too: what has been won is to be recorded, or it is lost unseen |
//! | the record is of another compiler | the room is [`ROOM_PERCENT_ELSEWHERE`], and only upwards |

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

/// Writes what the calls cost now.
pub(crate) fn run(root: &Path) -> Result<()> {
    let record = Record::measure(&build(root)?)?;
    std::fs::write(root.join(RECORD), record.to_string())?;
    print!("{record}");
    Ok(())
}

/// Compares what they cost with the record: by `built`, the bench, where CI has it already.
pub(crate) fn check(root: &Path, built: Option<&str>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(RECORD)).context(RECORD)?;
    let recorded = Record::parse(&text)?;
    let binary = built.map_or_else(|| build(root), |path| Ok(root.join(path)))?;
    let found = Record::measure(&binary)?;
    print!("{found}");
    let wrong = found.against(&recorded);
    ensure!(
        wrong.is_empty(),
        "{}\nIf it is meant: cargo xtask instructions, which records it in {RECORD}",
        wrong.join("\n")
    );
    Ok(())
}

/// Costs of calls, and the compiler that made them.
#[derive(Debug, PartialEq)]
struct Record {
    /// As it names itself.
    compiler: String,
    /// By row.
    rows: Vec<(String, Cost)>,
}

/// Per call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    /// Instructions.
    instructions: f64,
    /// Misses of the first-level instruction cache, the mean over [`CODE_CACHES`].
    code_misses: f64,
    /// Misses of the first-level data cache.
    data_misses: f64,
}

impl Cost {
    fn measure(binary: &Path, row: &str) -> Result<Self> {
        let calls = if row.ends_with("large") { CALLS / 20 } else { CALLS };
        let with = |cache: &str| {
            let (few, many) =
                (count(binary, cache, row, calls)?, count(binary, cache, row, 3 * calls)?);
            let per_call =
                |at: usize| many[at].saturating_sub(few[at]) as f64 / f64::from(2 * calls);
            Ok([0, 1, 2].map(per_call))
        };
        let costs: Result<Vec<[f64; 3]>> = thread::scope(|scope| {
            let runs = CODE_CACHES.map(|cache| scope.spawn(move || with(cache)));
            runs.into_iter().map(|run| run.join().expect("it returns errors")).collect()
        });
        let costs = costs?;
        let mean = |at: usize| costs.iter().map(|cost| cost[at]).sum::<f64>() / costs.len() as f64;
        Ok(Self { instructions: mean(0), code_misses: mean(1), data_misses: mean(2) })
    }
}

impl Record {
    fn measure(binary: &Path) -> Result<Self> {
        let compiler = output(Command::new("rustc").arg("-V"))?.trim().to_owned();
        let mut rows = Vec::new();
        for row in ROWS {
            rows.push((row.to_owned(), Cost::measure(binary, row)?));
        }
        Ok(Self { compiler, rows })
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let compiler = lines.next().context("no compiler")?.to_owned();
        let row = |line: &str| {
            let [name, words @ ..] = &line.split_whitespace().collect::<Vec<_>>()[..] else {
                bail!("an empty line");
            };
            let numbers: Vec<f64> =
                words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
            let &[instructions, code_misses, data_misses] = &numbers[..] else {
                bail!("{line}: three numbers follow a row");
            };
            Ok(((*name).to_owned(), Cost { instructions, code_misses, data_misses }))
        };
        Ok(Self { compiler, rows: lines.map(row).collect::<Result<_>>()? })
    }

    /// Contradictions between this record and another one.
    fn against(&self, recorded: &Self) -> Vec<String> {
        let is_same = self.compiler == recorded.compiler;
        let mut wrong = Vec::new();
        for (name, found) in &self.rows {
            let Some((_, before)) = recorded.rows.iter().find(|(row, _)| row == name) else {
                wrong.push(format!("{name}: not recorded"));
                continue;
            };
            for (what, found, before, (percent, slack)) in [
                ("instructions", found.instructions, before.instructions, (ROOM_PERCENT, 0.0)),
                ("code misses", found.code_misses, before.code_misses, MISSES_ROOM),
                ("data misses", found.data_misses, before.data_misses, MISSES_ROOM),
            ] {
                let percent = if is_same { percent } else { ROOM_PERCENT_ELSEWHERE };
                let room = before * percent / 100.0 + slack;
                if found > before + room || is_same && found < before - room {
                    wrong.push(format!("{name}: {found:.1} {what} a call, recorded {before:.1}"));
                }
            }
        }
        wrong
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{PREAMBLE}{}", self.compiler)?;
        for (name, Cost { instructions, code_misses, data_misses }) in &self.rows {
            writeln!(f, "{name:<24}{instructions:>10.0}{code_misses:>10.1}{data_misses:>10.1}")?;
        }
        Ok(())
    }
}

/// Builds the bench as CI does, in a directory of its own: by a cargo that another one runs, some
/// crates would be built anew, and then for all others once more.
fn build(root: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let bench = ["test", "--workspace", "--bench", "instructions", "--no-run", "--locked"];
    cargo.current_dir(root).args(bench).env("CARGO_TARGET_DIR", root.join("target/instructions"));
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "1");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
    let output = cargo.output().context("cargo is needed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let path =
        said.rsplit_once("benches/instructions.rs (").and_then(|(_, rest)| rest.split_once(')'));
    Ok(root.join(path.context("cargo does not tell where the bench is")?.0))
}

/// Instructions and misses of a run of `calls`.
fn count(binary: &Path, code_cache: &str, row: &str, calls: u32) -> Result<[u64; 3]> {
    let mut valgrind = Command::new("valgrind");
    // Without an environment, whose length would move the stack.
    valgrind.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    valgrind.args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]);
    valgrind.arg(format!("--I1={code_cache}")).args(CACHES);
    valgrind.arg(binary).arg(row).arg(calls.to_string());
    let output = valgrind.output().context("valgrind is needed: apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let total = |name: [&str; 2]| {
        let count = said.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(1..3).filter(|words| **words == name).and(words.get(3).copied())
        });
        let digits = count.with_context(|| format!("no {}", name.join(" ")))?.replace(',', "");
        Ok::<u64, anyhow::Error>(digits.parse()?)
    };
    Ok([total(["I", "refs:"])?, total(["I1", "misses:"])?, total(["D1", "misses:"])?])
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?} fails");
    Ok(String::from_utf8(output.stdout)?)
}

/// Rows of the bench.
const ROWS: [&str; 10] = [
    "direct",
    "direct-single",
    "direct-sealed",
    "direct-large",
    "routed",
    "homa",
    "homa-single",
    "homa-sealed",
    "place-jbsq:2",
    "place-auto-clone",
];

/// Calls of the first run, a third of the second's. The difference is what they cost without the
/// start.
const CALLS: u32 = 200;

/// First-level instruction caches of 16, 24, 32 and 48 kB: bytes, ways, and bytes of a line.
const CODE_CACHES: [&str; 4] = ["16384,4,64", "24576,6,64", "32768,8,64", "49152,12,64"];

/// A data cache of 48 kB, whatever this machine has.
const CACHES: [&str; 2] = ["--D1=49152,12,64", "--LL=2097152,16,64"];

const ROOM_PERCENT: f64 = 3.0;

const ROOM_PERCENT_ELSEWHERE: f64 = 20.0;

/// Room for misses, which depend on where the linker and the system put things: in a hundred, and
/// in all.
const MISSES_PERCENT: f64 = 20.0;
const MISSES_ROOM: (f64, f64) = (MISSES_PERCENT, 2.0);

const RECORD: &str = "crates/proto/benches/instructions.txt";

const PREAMBLE: &str = "\
# Per call: instructions, misses of first-level instruction caches (the mean of 16, 24, 32 and 48 kB), of a data cache of 48 kB. Written by
# `cargo xtask instructions`, and compared by `cargo xtask instructions --check`, with 3 % of room, of misses 20 %.
";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# words\nrustc 1\ndirect 1000 20.0 3.0\n";

    fn found(compiler: &str, instructions: f64, code_misses: f64) -> Vec<String> {
        let cost = Cost { instructions, code_misses, data_misses: 3.0 };
        let record =
            Record { compiler: compiler.to_owned(), rows: vec![("direct".to_owned(), cost)] };
        record.against(&Record::parse(TEXT).unwrap())
    }

    #[test]
    fn what_is_dearer_is_refused_and_what_is_cheaper_wants_to_be_recorded() {
        assert_eq!(found("rustc 1", 1029.0, 22.0), [""; 0]);
        assert_eq!(
            found("rustc 1", 1031.0, 20.0),
            ["direct: 1031.0 instructions a call, recorded 1000.0"]
        );
        assert_eq!(found("rustc 1", 969.0, 20.0).len(), 1);
        assert_eq!(found("rustc 1", 1000.0, 25.9), [""; 0]);
        assert_eq!(found("rustc 1", 1000.0, 26.1).len(), 1);
    }

    #[test]
    fn another_compiler_has_more_room_and_owes_no_record() {
        assert_eq!(found("rustc 2", 1190.0, 5.0), [""; 0]);
        assert_eq!(found("rustc 2", 1210.0, 20.0).len(), 1);
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let record = Record::parse(TEXT).unwrap();
        assert_eq!(Record::parse(&record.to_string()).unwrap(), record);
        assert!(Record::parse("rustc 1\ndirect 5\n").is_err());
    }
}
