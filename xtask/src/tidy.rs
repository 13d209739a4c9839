//! `cargo xtask tidy`: the rules of DESIGN and of the style that no compiler checks.
//!
//! A rule is a function from the tree to its violations. All rules run, and all violations are
//! listed, sorted by place.

mod circles;
mod doubles;
mod fields;
pub(crate) mod fresh;
mod layers;
mod links;
mod rust;
mod text;

use std::path::Path;

use anyhow::{Result, bail};

use crate::tree::{Tree, Violation};
use crate::{dissectors, ebpf, metrics, p4};

/// Lists every violation on standard error; an error when there is one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut violations: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    violations.extend(fresh::stale(&tree, fresh::GENERATED)?);
    violations.extend(dissectors::stale(&tree)?);
    violations.extend(ebpf::stale(&tree)?);
    violations.extend(metrics::stale(&tree)?);
    violations.extend(p4::stale(&tree)?);
    violations.sort();
    violations.dedup();
    for Violation { path, line, message } in &violations {
        eprintln!("{path}:{line}: {message}");
    }
    if violations.is_empty() {
        println!("tidy: {} files, no violation", tree.paths().count());
        return Ok(());
    }
    bail!("tidy: {} violations", violations.len());
}

const RULES: &[fn(&Tree) -> Vec<Violation>] = &[
    circles::files_import_in_no_circle,
    doubles::protocols_share_code,
    fields::fields_have_docs,
    fields::state_is_in_parts,
    layers::dependency_direction,
    links::relative_links_resolve,
    links::summary_names_every_page,
    rust::functions_are_short,
    rust::functions_take_few_arguments,
    rust::modules_begin_with_a_doc,
    rust::modules_have_telling_names,
    rust::unsafe_lives_in_net,
    text::files_are_short,
    text::comments_are_narrow,
    text::docs_say_what_a_thing_is,
    text::files_have_telling_names,
    text::no_loose_ends,
    text::no_machine_paths,
];
