//! The dependency direction of DESIGN: normal and build dependencies go down the list below and
//! nowhere else.
//!
//! Development dependencies are free: a test of wire may well drive the simulator.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::tree::{Tree, Violation};

/// Refuses a dependency between crates of the house that DESIGN does not draw, and a crate that
/// DESIGN does not know.
pub(super) fn dependency_direction(tree: &Tree) -> Vec<Violation> {
    let is_crate = |path: &str| path.starts_with("crates/") && path.ends_with("/Cargo.toml");
    tree.texts()
        .filter(|(path, _)| is_crate(path))
        .flat_map(|(path, text)| check_manifest(path, text))
        .collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Violation> {
    let manifest = match DeTable::parse(text) {
        Ok(manifest) => manifest.into_inner(),
        Err(error) => return vec![Violation::new(path, 1, format!("not TOML: {error}"))],
    };
    let name =
        table(&manifest, "package").and_then(|package| string(package, "name")).unwrap_or_default();
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        return vec![Violation::new(
            path,
            1,
            format!("`{name}` has no place in DESIGN's dependency direction"),
        )];
    };
    let mut violations = Vec::new();
    for (dependency, offset) in dependencies(&manifest) {
        let ours =
            dependency == "tailcut" || dependency.starts_with("tailcut-") || dependency == "xtask";
        if ours && !allowed.contains(&dependency.as_str()) {
            let line = text[..offset].matches('\n').count() + 1;
            violations.push(Violation::new(
                path,
                line,
                format!("{name} may not depend on {dependency} (DESIGN)"),
            ));
        }
    }
    violations
}

/// The packages that the manifest depends on outside of tests, each with its byte offset.
fn dependencies(manifest: &DeTable<'_>) -> Vec<(String, usize)> {
    let mut found = section_dependencies(manifest);
    if let Some(targets) = table(manifest, "target") {
        let sections = targets.values().filter_map(|target| target.get_ref().as_table());
        found.extend(sections.flat_map(section_dependencies));
    }
    found
}

fn section_dependencies(section: &DeTable<'_>) -> Vec<(String, usize)> {
    let tables =
        ["dependencies", "build-dependencies"].into_iter().filter_map(|key| table(section, key));
    tables
        .flat_map(|dependencies| dependencies.iter())
        .map(|(key, value)| (package(key, value), key.span().start))
        .collect()
}

/// A dependency's package: its key, unless the dependency renames it.
fn package(key: &Spanned<impl AsRef<str>>, value: &Spanned<DeValue<'_>>) -> String {
    let renamed = value.get_ref().as_table().and_then(|table| string(table, "package"));
    renamed.unwrap_or(key.get_ref().as_ref()).to_owned()
}

fn table<'a, 'i>(parent: &'a DeTable<'i>, key: &str) -> Option<&'a DeTable<'i>> {
    parent.get(key)?.get_ref().as_table()
}

fn string<'a>(parent: &'a DeTable<'_>, key: &str) -> Option<&'a str> {
    parent.get(key)?.get_ref().as_str()
}

/// Dependencies that are allowed; DESIGN, "The house".
const ALLOWED: &[(&str, &[&str])] = &[
    ("tailcut-wire", &[]),
    ("tailcut-placement", &[]),
    ("tailcut-proto", &["tailcut-placement", "tailcut-wire"]),
    ("tailcut-measure", &["tailcut-placement"]),
    ("tailcut-bridge", &[]),
    ("tailcut-net", &["tailcut-proto", "tailcut-wire"]),
    ("tailcut-sim", &["tailcut-measure", "tailcut-proto", "tailcut-wire"]),
    ("tailcut", &["tailcut-net", "tailcut-proto"]),
    ("tailcut-services", &["tailcut"]),
    ("tailcut-c", &["tailcut"]),
    ("tailcut-python", &["tailcut"]),
    // It writes text that names tailcut-services, and needs nothing of it.
    ("tailcut-build", &[]),
    ("tailcut-helloworld", &["tailcut-build", "tailcut-services"]),
    // It drives proto's endpoints itself, for it looks at each packet of a call that is stamped.
    (
        "tailcut-instrument",
        &["tailcut", "tailcut-measure", "tailcut-net", "tailcut-proto", "tailcut-wire"],
    ),
    ("tailcut-experiments", &["tailcut-measure", "tailcut-proto", "tailcut-sim"]),
    (
        "tailcut-cli",
        &[
            "tailcut",
            "tailcut-bridge",
            "tailcut-experiments",
            "tailcut-instrument",
            "tailcut-measure",
            "tailcut-net",
            "tailcut-proto",
            "tailcut-sim",
            "tailcut-wire",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a crate's manifest that break the rule, for a package and what follows its
    /// name.
    fn check(package: &str, rest: &str) -> Vec<usize> {
        let manifest = format!("[package]\nname = \"{package}\"\n{rest}");
        let tree = Tree::from([("crates/any/Cargo.toml", manifest.as_str())]);
        dependency_direction(&tree).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_dependency_that_design_draws_passes() {
        assert_eq!(
            check("tailcut-proto", "[dependencies]\ntailcut-wire.workspace = true\nlibc = \"1\"\n"),
            [0_usize; 0]
        );
    }

    #[test]
    fn net_may_not_know_sim() {
        assert_eq!(
            check("tailcut-net", "[dependencies]\nlibc = \"1\"\ntailcut-sim.workspace = true\n"),
            [5]
        );
    }

    #[test]
    fn a_renamed_dependency_is_seen() {
        assert_eq!(
            check(
                "tailcut-net",
                "[dependencies]\nother = { package = \"tailcut-sim\", path = \"..\" }\n"
            ),
            [4]
        );
    }

    #[test]
    fn a_dependency_in_a_table_of_its_own_is_seen() {
        assert_eq!(check("tailcut-wire", "[dependencies.tailcut-proto]\nworkspace = true\n"), [3]);
    }

    #[test]
    fn a_target_dependency_is_seen() {
        assert_eq!(
            check(
                "tailcut-sim",
                "[target.'cfg(unix)'.dependencies]\ntailcut-net.workspace = true\n"
            ),
            [4]
        );
    }

    #[test]
    fn a_build_dependency_is_seen() {
        assert_eq!(check("tailcut-wire", "[build-dependencies]\nxtask.path = \"..\"\n"), [4]);
    }

    #[test]
    fn a_development_dependency_is_free() {
        assert_eq!(
            check("tailcut-wire", "[dev-dependencies]\ntailcut-sim.workspace = true\n"),
            [0_usize; 0]
        );
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        assert_eq!(check("tailcut-extras", ""), [1]);
    }

    #[test]
    fn a_broken_manifest_is_refused() {
        assert_eq!(check("tailcut-wire", "[dependencies"), [1]);
    }
}
