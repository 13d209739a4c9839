//! `cargo xtask p4`: the programs in `p4/`, their header, and what they have decided in bmv2.
//!
//! No package has the tools: p4c and bmv2 are built from their public repositories
//! (docs/dataplane.md). So what bmv2 decided for each trace is recorded in `conformance/p4.txt`,
//! with the hashes of program, trace and decisions, and what p4test said of the programs for TNA.
//!
//! | | refused by |
//! |---|---|
//! | a header that crates/wire would not give, a program or a trace that has changed since it was recorded | `tidy`, which needs no tools |
//! | a program that decides otherwise than recorded | `p4 --check`, where the tools are on the path |
//! | a trace that the Rust policy would not give | the test `conformance` of crates/proto |
//!
//! Invariant: the record is of real runs. Only [`run`] writes it, of what came out of them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::dissectors::{Wire, WireField, WireItem};
use crate::ebpf::{PROTOCOLS, is_opaque, number, snake};
use crate::tidy::fresh::git_hash;
use crate::tree::{Tree, Violation};

/// Writes the header, the beginnings of the traces, and the record of what bmv2 decides now.
pub(crate) fn run(root: &Path) -> Result<()> {
    fs::write(root.join(HEADER), header(&Tree::read(root)?)?)?;
    fs::create_dir_all(root.join(TRACES))?;
    for name in cargo(root, &["run", "-p", "tailcut-proto", "--example", "conformance"])?.lines() {
        let text = trace(root, name)?;
        fs::write(root.join(trace_path(name)), beginning(name, &text)?)?;
    }
    let tools = Tools::find()
        .context("p4c-bm2-ss, p4test, simple_switch or simple_switch_CLI is missing")?;
    let record = record(root, &tools)?;
    fs::write(root.join(RECORD), format!("{PREAMBLE_RECORD}tools: {}\n{record}", tools.version))?;
    Ok(())
}

/// Compares the record with the sources, and where the tools are there with what they give.
pub(crate) fn check(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    if let Some(Violation { path, message, .. }) = stale(&tree)?.first() {
        bail!("{path}: {message}");
    }
    let Some(tools) = Tools::find() else {
        println!(
            "p4: no p4c and bmv2 here; what they decided is on record for these programs and traces"
        );
        return Ok(());
    };
    let recorded = tree.text(RECORD).unwrap_or_default();
    let found = record(root, &tools)?;
    for line in found.lines() {
        ensure!(recorded.contains(line), "bmv2 gives now what is not on record: {line}");
    }
    println!("p4: bmv2 decides as recorded");
    Ok(())
}

/// Lists what is not of its sources.
pub(crate) fn stale(tree: &Tree) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    if tree.text(ROUTER).is_none() {
        return Ok(violations);
    }
    let mut refuse = |path: &str, message: String| {
        violations.push(Violation::new(path, 1, message));
    };
    if tree.text(HEADER) != Some(&header(tree)?) {
        refuse(HEADER, "stale: run `cargo xtask p4`".to_owned());
    }
    let record = tree.text(RECORD).unwrap_or_default();
    for (program, traces) in REPLAYED {
        for &name in traces {
            let path = trace_path(name);
            let hash = tree
                .text(&path)
                .and_then(|text| text.lines().find_map(|line| line.strip_prefix("hash ")));
            let Some(hash) = hash else {
                refuse(&path, "missing: run `cargo xtask p4`".to_owned());
                continue;
            };
            // What was decided is the trace.
            let line = decided(program, &source_hash(tree, program)?, (name, hash), hash);
            if !record.lines().any(|known| known == line) {
                refuse(
                    program,
                    format!("bmv2 is not on record to have decided {name} as the Rust policy"),
                );
            }
        }
    }
    for (program, what) in CHECKED {
        let line = format!("{program} {} {what}", source_hash(tree, program)?);
        if !record.lines().any(|known| known == line) {
            refuse(program, format!("not on record: {what}"));
        }
    }
    Ok(violations)
}

/// The tools for P4.
struct Tools {
    /// Versions, as they name themselves.
    version: String,
    /// The folder of the open TNA headers, where it is not p4c's own.
    tna: Option<OsString>,
}

impl Tools {
    /// `None` where one is missing.
    fn find() -> Option<Self> {
        let ask = |tool: &str| -> Option<String> {
            let output = Command::new(tool).arg("--version").output().ok()?;
            // p4c says it on standard error.
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            let version = text
                .split_whitespace()
                .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
            Some(format!("{tool} {version}"))
        };
        let version = ["p4c-bm2-ss", "p4test", "simple_switch"].map(ask);
        let version = version.into_iter().collect::<Option<Vec<_>>>()?.join(", ");
        Command::new("simple_switch_CLI").arg("--help").output().ok()?;
        Some(Self { version, tna: std::env::var_os("TNA_INCLUDE") })
    }
}

/// Results of the programs now: a line for each trace and check.
fn record(root: &Path, tools: &Tools) -> Result<String> {
    let tree = Tree::read(root)?;
    cargo(root, &["build", "-p", "tailcut-cli"])?;
    let mut lines = String::new();
    let folder = target(root).join("p4");
    fs::create_dir_all(&folder)?;
    for (program, traces) in REPLAYED {
        let (hash, compiled) = (source_hash(&tree, program)?, folder.join("program.json"));
        let mut compiler = Command::new("p4c-bm2-ss");
        succeed(compiler.current_dir(root).args(["--std", "p4-16", program, "-o"]).arg(&compiled))?;
        for &name in traces {
            let (path, text) = (folder.join(format!("{name}.txt")), trace(root, name)?);
            fs::write(&path, &text)?;
            let kind = if program == ROUTER { "router" } else { "netclone" };
            let answers = replay(root, kind, (&compiled, &path))?;
            if let Some((found, wanted)) =
                answers.lines().zip(text.lines()).find(|(found, wanted)| found != wanted)
            {
                bail!("{program}, trace {name}: {found}, not {wanted}");
            }
            let (text, answers) = (git_hash(&text)?, git_hash(&answers)?);
            ensure!(text == answers, "{program}, trace {name}: it ends early");
            let line = decided(program, &hash, (name, &text), &answers);
            println!("{line}");
            lines.push_str(&format!("{line}\n"));
        }
        if program == ROUTER {
            let said = replay(root, "rounds", (&compiled, Path::new("-")))?;
            ensure!(said.trim() == ROUNDS, "{program}: {said}");
            lines.push_str(&format!("{program} {hash} {ROUNDS}\n"));
        }
    }
    for (program, what) in CHECKED.iter().filter(|(_, what)| *what == TYPE_CHECKED) {
        let mut checker = Command::new("p4test");
        checker.current_dir(root).arg("-D__TARGET_TOFINO__=1");
        if let Some(folder) = &tools.tna {
            checker.arg("-I").arg(folder);
        }
        succeed(checker.arg(program))?;
        lines.push_str(&format!("{program} {} {what}\n", source_hash(&tree, program)?));
    }
    Ok(lines)
}

/// Decisions of a program at each step, in the form of the trace.
fn replay(root: &Path, kind: &str, (compiled, trace): (&Path, &Path)) -> Result<String> {
    let mut script = Command::new("python3");
    let script = script.arg(root.join("scripts/p4_replay.py")).arg(kind);
    succeed(script.arg(compiled).arg(target(root).join("debug/tailcut")).arg(trace))
}

/// The text of a trace, from the Rust policy.
fn trace(root: &Path, name: &str) -> Result<String> {
    cargo(root, &["run", "-p", "tailcut-proto", "--example", "conformance", "--", name])
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let [command, rest @ ..] = arguments else { bail!("no command for cargo") };
    succeed(Command::new(cargo).current_dir(root).args([*command, "-q", "--locked"]).args(rest))
}

/// Output of a command; an error with its complaint where it fails.
fn succeed(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{program} is needed"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The line of the record for a trace.
fn decided(program: &str, hash: &str, (name, text): (&str, &str), answers: &str) -> String {
    format!("{program} {hash} trace {name} {text} decisions {answers}")
}

/// The committed part of a trace.
fn beginning(name: &str, text: &str) -> Result<String> {
    let head: String = text.lines().take(HEAD_LINES).map(|line| format!("{line}\n")).collect();
    let hash = git_hash(text)?;
    Ok(format!(
        "# The trace {name}: the hash and the first lines of what `cargo run -p tailcut-proto --example conformance {name}` prints.\nhash {hash}\n{head}"
    ))
}

/// The beginning of a trace, in a name that every file system takes.
fn trace_path(name: &str) -> String {
    format!("{TRACES}/{}.txt", name.replace([':', '+'], "-"))
}

/// The hash of a program with what it includes and uses: a number that is new in crates/wire
/// changes no program, nor does a comment.
fn source_hash(tree: &Tree, program: &str) -> Result<String> {
    let text = |path| tree.text(path).with_context(|| format!("{path} is missing"));
    let own = without_comments(&format!("{}{}", text(PACKETS)?, text(program)?));
    git_hash(&format!("{}{own}", used(text(HEADER)?, &own)))
}

/// The lines of a program in P4 that hold more than comments, of which it has no strings to hide
/// in.
fn without_comments(program: &str) -> String {
    let (mut kept, mut rest) = (String::new(), program);
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        kept.push_str(before);
        let end = match from.as_bytes().get(1) {
            Some(b'*') => from[2..].find("*/").map_or(from.len(), |end| 2 + end + "*/".len()),
            Some(b'/') => from.find('\n').unwrap_or(from.len()),
            _ => {
                kept.push('/');
                1
            }
        };
        rest = &from[end..];
    }
    kept.push_str(rest);
    let lines = kept.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// The numbers and headers of one text that another names.
fn used(header: &str, program: &str) -> String {
    let no_name = |letter: char| !letter.is_alphanumeric() && letter != '_';
    let names: BTreeSet<&str> = program.split(no_name).collect();
    let (mut kept, mut is_kept) = (String::new(), false);
    for line in header.lines() {
        // The fields of a header are indented, and its last line begins with a brace.
        if let Some(name) = line.strip_prefix("#define ").or(line.strip_prefix("header ")) {
            is_kept = name.split(' ').next().is_some_and(|name| names.contains(name));
        }
        if is_kept {
            kept.push_str(&format!("{line}\n"));
        }
        is_kept &= line.ends_with('{') || line.starts_with(' ');
    }
    kept
}

/// The headers and numbers in P4. A header that holds another begins behind that one, which parsers
/// take before it.
fn header(tree: &Tree) -> Result<String> {
    let mut text = String::from(PREAMBLE);
    for (protocol, sources) in PROTOCOLS {
        let wire = Wire::read(tree, sources)?;
        let constants: Vec<_> =
            wire.constants().map(|(name, value)| (name.to_owned(), value)).collect();
        text.push_str(&numbers(protocol, "", &constants));
        for item in &wire.items {
            match item {
                WireItem::Numbers(name, members) => {
                    text.push_str(&numbers(protocol, name, members))
                }
                WireItem::Layout(_, _, fields) if fields.iter().any(is_opaque) => {}
                WireItem::Layout(name, _, fields) => {
                    let fields: String = fields.iter().filter_map(declaration).collect();
                    text.push_str(&format!(
                        "\nheader {protocol}_{}_t {{\n{fields}}}\n",
                        snake(name)
                    ));
                }
            }
        }
    }
    text.push_str("\n#endif\n");
    Ok(text)
}

fn numbers(protocol: &str, owner: &str, members: &[(String, u64)]) -> String {
    let define = |(name, value): &(String, u64)| {
        format!("#define {} {value}\n", number(protocol, owner, name))
    };
    let defines: String = members.iter().map(define).collect();
    if defines.is_empty() { defines } else { format!("\n{defines}") }
}

fn declaration(WireField { name, kind, count, .. }: &WireField) -> Option<String> {
    let bits = match kind.as_str() {
        "u8" => 8,
        "U16" => 16,
        "U32" => 32,
        "U64" => 64,
        _ => return None,
    };
    Some(format!("    bit<{}> {name};\n", bits * count.unwrap_or(1)))
}

const HEADER: &str = "p4/wire.p4";
const PACKETS: &str = "p4/packets.p4";
const ROUTER: &str = "p4/router_v1model.p4";
const RECORD: &str = "conformance/p4.txt";
const TRACES: &str = "conformance/traces";
/// Lines of a trace that are committed.
const HEAD_LINES: usize = 24;
/// Programs that bmv2 runs, and the traces that they decide.
const REPLAYED: [(&str, &[&str]); 2] = [
    (ROUTER, &["jbsq:1", "jbsq:3"]),
    ("p4/netclone_v1model.p4", &["netclone", "netclone+racksched"]),
];
/// Other checks of programs.
const CHECKED: [(&str, &str); 3] =
    [(ROUTER, ROUNDS), ("p4/router_tna.p4", TYPE_CHECKED), ("p4/netclone_tna.p4", TYPE_CHECKED)];
const ROUNDS: &str =
    "the third of three requests was placed after a FEEDBACK, and had recirculated";
const TYPE_CHECKED: &str = "type-checked by p4test";
const PREAMBLE: &str = "\
/* Headers and numbers of R2P2 and NetClone. Written by `cargo xtask p4` from crates/wire. */
#ifndef TAILCUT_WIRE_P4
#define TAILCUT_WIRE_P4
";
const PREAMBLE_RECORD: &str = "\
# What bmv2 has decided for each trace, and what else was seen of the programs in p4/. Written by `cargo xtask p4` of
# real runs: program, hash of its sources, trace, hash of its text, hash of the decisions in the same form.
";

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: (&str, &str) = (
        "crates/wire/src/r2p2/header.rs",
        "pub const LEN: usize = 3;
        #[repr(C)] pub struct Base { pub id: U64, pub rest: [u8; LEN] }
        #[repr(C)] pub struct Whole { pub base: Base, pub port: U16 }
        #[repr(u8)] pub enum MessageType { ReplyAck = 12 }",
    );

    #[test]
    fn a_layout_becomes_a_header_without_what_comes_before_it() {
        let text = header(&Tree::from([WIRE])).expect("a header");
        for part in [
            "#define R2P2_LEN 3\n",
            "header r2p2_base_t {\n    bit<64> id;\n    bit<24> rest;\n}\n",
            "header r2p2_whole_t {\n    bit<16> port;\n}\n",
            "#define R2P2_MESSAGE_TYPE_REPLY_ACK 12\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_program_has_what_it_names() {
        let header = "#define A 1\n#define A_B 2\n\nheader c_t {\n    bit<8> d;\n}\n\nheader e_t {\n    bit<8> f;\n}\n";
        assert_eq!(used(header, "c_t c; x = A;"), "#define A 1\nheader c_t {\n    bit<8> d;\n}\n");
        assert_eq!(used(header, "A_B"), "#define A_B 2\n");
    }

    /// The files that are refused where the sources are these and the record is this.
    fn refused(program: &str, record: impl FnOnce(&Tree) -> String) -> Vec<String> {
        let traces: Vec<(String, String)> = REPLAYED
            .iter()
            .flat_map(|(_, traces)| *traces)
            .map(|name| (trace_path(name), format!("hash {name}\n")))
            .collect();
        let wire_p4 = header(&Tree::from([WIRE])).expect("a header");
        let [a, b, c, d] = &traces[..] else { panic!("four traces") };
        let files = |program: &str, record: &str| {
            Tree::from([
                WIRE,
                (HEADER, wire_p4.as_str()),
                (PACKETS, "packets"),
                (ROUTER, program),
                ("p4/router_tna.p4", "b"),
                (REPLAYED[1].0, "c"),
                ("p4/netclone_tna.p4", "d"),
                (a.0.as_str(), a.1.as_str()),
                (b.0.as_str(), b.1.as_str()),
                (c.0.as_str(), c.1.as_str()),
                (d.0.as_str(), d.1.as_str()),
                (RECORD, record),
            ])
        };
        let record = record(&files("before", ""));
        let stale = stale(&files(program, &record)).expect("a list");
        stale.into_iter().map(|violation| violation.path).collect()
    }

    /// A record as of a run in which each program decided these hashes.
    fn recorded(tree: &Tree, answer: fn(&str) -> String) -> String {
        let mut lines = Vec::new();
        for (program, traces) in REPLAYED {
            let hash = source_hash(tree, program).expect("a hash");
            let line = |name: &&str| decided(program, &hash, (*name, *name), &answer(name));
            lines.extend(traces.iter().map(line));
        }
        for (program, what) in CHECKED {
            lines.push(format!("{program} {} {what}", source_hash(tree, program).expect("a hash")));
        }
        lines.join("\n")
    }

    #[test]
    fn comments_are_no_part_of_a_program() {
        let program = "/* what\n * it is */\n#include <core.p4>\nx = y / 2; // half\n\n  z /* not */ = 1;\n// end";
        assert_eq!(without_comments(program), "#include <core.p4>\nx = y / 2;\n  z  = 1;\n");
    }

    #[test]
    fn a_program_that_changed_since_or_decided_otherwise_is_refused() {
        let same = |tree: &Tree| recorded(tree, str::to_owned);
        assert_eq!(refused("before", same), <[String; 0]>::default());
        assert_eq!(refused("changed", same), [ROUTER; 3]);
        let other =
            |name: &str| if name == "jbsq:3" { "bound".to_owned() } else { name.to_owned() };
        assert_eq!(refused("before", |tree| recorded(tree, other)), [ROUTER]);
    }
}
