//! `cargo xtask ebpf`: the programs that run in the kernel, compiled from `ebpf/*.bpf.c`.
//!
//! The objects are committed, so that a plain build needs no clang. Beside each is a note with the
//! hash of its sources and the compiler that made it. `ebpf/wire.h` is written from crates/wire.
//!
//! | | refused by |
//! |---|---|
//! | a header that crates/wire would not give, an object whose sources have changed | `tidy`, which needs no compiler |
//! | an object that its sources do not give, to the byte | `ebpf --check`, with the compiler of the note; another one must compile them |

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::dissectors::{Wire, WireField, WireItem};
use crate::tidy::fresh::git_hash;
use crate::tree::{Tree, Violation};

/// Writes the header, the objects and their notes.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    fs::write(root.join(HEADER), header(&tree)?)?;
    let tree = Tree::read(root)?;
    let compiler = compiler()?;
    for source in programs(&tree) {
        let object = root.join(object_of(source));
        compile(root, source, &object)?;
        fs::write(root.join(note_of(source)), note(&tree, source, &compiler)?)?;
    }
    Ok(())
}

/// Compiles every program, and compares where the note names this compiler.
pub(crate) fn check(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    if let Some(Violation { path, message, .. }) = stale(&tree)?.first() {
        bail!("{path}: {message}");
    }
    let compiler = compiler()?;
    let fresh = root.join("target/ebpf.o");
    for source in programs(&tree) {
        compile(root, source, &fresh)?;
        let same = fs::read(&fresh)? == fs::read(root.join(object_of(source)))?;
        let is_known = tree.text(&note_of(source)).is_some_and(|note| note.contains(&compiler));
        ensure!(same || !is_known, "{source} gives another object: run `cargo xtask ebpf`");
        let compared = if is_known { "gives its object" } else { "compiles, by another compiler" };
        println!("{source}: {compared}");
    }
    Ok(fs::remove_file(fresh)?)
}

/// Lists the header and the objects that are not of their sources.
pub(crate) fn stale(tree: &Tree) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    let mut refuse = |path: &str| {
        violations.push(Violation::new(path, 1, "stale: run `cargo xtask ebpf`"));
    };
    if programs(tree).next().is_none() {
        return Ok(Vec::new());
    }
    if tree.text(HEADER) != Some(&header(tree)?) {
        refuse(HEADER);
    }
    for source in programs(tree) {
        let hash = hash_line(tree, source)?;
        let is_fresh = |note: &str| note.lines().any(|line| line == hash);
        let object = object_of(source);
        if !tree.text(&note_of(source)).is_some_and(is_fresh) || !tree.holds(&object) {
            refuse(&object);
        }
    }
    Ok(violations)
}

fn programs(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.paths().filter(|path| path.starts_with(FOLDER) && path.ends_with(".bpf.c"))
}

fn object_of(source: &str) -> String {
    source.replace(".bpf.c", ".bpf.o")
}

fn note_of(source: &str) -> String {
    source.replace(".bpf.c", ".bpf.o.source")
}

fn note(tree: &Tree, source: &str, compiler: &str) -> Result<String> {
    Ok(format!("{}\ncompiler: {compiler}\n", hash_line(tree, source)?))
}

/// The hash of a program and of all that it may include.
fn hash_line(tree: &Tree, source: &str) -> Result<String> {
    let included = tree.paths().filter(|path| {
        path.starts_with(FOLDER) && (path.ends_with(".h") || path.ends_with(".bpf.c"))
    });
    // One that includes another is of that one too.
    let text = tree.text(source).context("a program is no text")?;
    let parts = included.filter(|path| {
        let name = path.trim_start_matches(FOLDER);
        *path == source || path.ends_with(".h") || text.contains(&format!("\"{name}\""))
    });
    let texts: String = parts.filter_map(|path| tree.text(path)).collect();
    Ok(format!("sources: {}", git_hash(&texts)?))
}

fn compiler() -> Result<String> {
    let output = Command::new("clang").arg("--version").output();
    let output = output.context("clang is needed (Debian: clang llvm libbpf-dev)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn compile(root: &Path, source: &str, object: &Path) -> Result<()> {
    let triple = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let flags = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"];
    let mut clang = Command::new("clang");
    // A path of this machine in the object would make every other's differ.
    clang.current_dir(root).args(flags).arg("-fdebug-compilation-dir=.").arg(triple);
    let status = clang.args(["-c", source, "-o"]).arg(object).status();
    ensure!(status.context("clang is needed")?.success(), "{source} does not compile");
    let status = Command::new("llvm-strip").arg("-g").arg(object).status();
    ensure!(status.context("llvm-strip is needed (Debian: llvm)")?.success(), "llvm-strip failed");
    Ok(())
}

/// The headers and numbers in C.
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
                // What no switch and no kernel reads.
                WireItem::Layout(_, _, fields) if fields.iter().any(is_opaque) => {}
                WireItem::Layout(name, len, fields) => {
                    let name = format!("{protocol}_{}", snake(name));
                    text.push_str(&format!("\nstruct {name} {{\n"));
                    let declare = |field| declaration(protocol, field);
                    text.extend(fields.iter().map(declare));
                    text.push_str(&format!(
                        "}};\n_Static_assert(sizeof(struct {name}) == {len}, \"as in crates/wire\");\n"
                    ));
                }
            }
        }
    }
    text.push_str("\n#endif\n");
    Ok(text)
}

/// A field that end hosts keep for themselves.
pub(crate) fn is_opaque(field: &WireField) -> bool {
    field.name == "stamp" || field.name == "trailer"
}

fn numbers(protocol: &str, owner: &str, members: &[(String, u64)]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let member = |(name, value): &(String, u64)| {
        format!("    {} = {value},\n", number(protocol, owner, name))
    };
    format!("\nenum {{\n{}}};\n", members.iter().map(member).collect::<String>())
}

/// The name of a number in C and in P4.
pub(crate) fn number(protocol: &str, owner: &str, name: &str) -> String {
    let owner = if owner.is_empty() { String::new() } else { format!("{}_", snake(owner)) };
    format!("{protocol}_{owner}{}", snake(name)).to_uppercase()
}

/// A field as C declares it. The fields are aligned to their sizes, so no structure has gaps.
fn declaration(protocol: &str, WireField { name, kind, count, .. }: &WireField) -> String {
    let kind = match kind.as_str() {
        "u8" => "__u8".to_owned(),
        "U16" => "__be16".to_owned(),
        "U32" => "__be32".to_owned(),
        "U64" => "__be64".to_owned(),
        layout => format!("struct {protocol}_{}", snake(layout)),
    };
    let elements = count.map(|count| format!("[{count}]")).unwrap_or_default();
    format!("    {kind} {name}{elements};\n")
}

/// `RpcId` as `rpc_id`; what has no small letter is taken for a constant.
pub(crate) fn snake(name: &str) -> String {
    if !name.chars().any(char::is_lowercase) {
        return name.to_lowercase();
    }
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

const FOLDER: &str = "ebpf/";
const HEADER: &str = "ebpf/wire.h";
/// The protocols that programs read, each with the sources of its headers.
pub(crate) const PROTOCOLS: [(&str, &str); 2] =
    [("r2p2", "crates/wire/src/r2p2"), ("netclone", "crates/wire/src/netclone")];
const PREAMBLE: &str = "\
/* Headers and numbers of R2P2 and NetClone. Written by `cargo xtask ebpf` from crates/wire. */
#ifndef TAILCUT_WIRE_H
#define TAILCUT_WIRE_H

#include <linux/types.h>
";

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(source: &'static str) -> Tree {
        Tree::from([("crates/wire/src/r2p2/header.rs", source), ("ebpf/a.bpf.c", "int a;")])
    }

    #[test]
    fn a_layout_becomes_a_structure_of_network_order() {
        let tree = tree(
            "pub const LEN: usize = 3;
            #[repr(C)] pub struct OneHeader { pub id: U64, pub port: U16, pub rest: [u8; LEN] }
            #[repr(u8)] pub enum MessageType { ReplyAck = 12 }",
        );
        let text = header(&tree).expect("a header");
        for part in [
            "R2P2_LEN = 3,",
            "struct r2p2_one_header {\n    __be64 id;\n    __be16 port;\n    __u8 rest[3];\n};",
            "sizeof(struct r2p2_one_header) == 13",
            "R2P2_MESSAGE_TYPE_REPLY_ACK = 12,",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn an_object_without_a_note_of_its_sources_is_stale() {
        let paths: Vec<String> =
            stale(&tree("")).expect("a list").into_iter().map(|stale| stale.path).collect();
        assert_eq!(paths, ["ebpf/wire.h", "ebpf/a.bpf.o"]);
    }
}
