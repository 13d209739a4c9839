//! The crates as a registry would get them. Nothing is published.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{output, recreate, run_command};

/// That each crate that may be published has what a registry asks for.
pub(super) fn check(root: &Path) -> Result<()> {
    let problems: Vec<String> = published(root)?.iter().flat_map(problems).collect();
    ensure!(problems.is_empty(), "crates are not fit for a registry:\n{}", problems.join("\n"));
    Ok(())
}

/// That each can be packaged, and how many files that takes.
pub(super) fn list(root: &Path) -> Result<()> {
    for package in published(root)? {
        let name = name(&package);
        let mut cargo = cargo(root);
        cargo.args(["package", "--list", "--allow-dirty", "--offline", "--package", name]);
        let files = String::from_utf8(output(&mut cargo)?)?;
        for wanted in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/"] {
            let is_there = files.lines().any(|file| file.starts_with(wanted));
            ensure!(is_there, "{name}: its package has no {wanted}");
        }
        println!("dist: {name}: {} files", files.lines().count());
    }
    Ok(())
}

/// Packages them into `out`, and builds each from its package, as they would be published. Needs
/// cargo 1.90.
pub(super) fn package(root: &Path, out: &Path) -> Result<()> {
    recreate(out)?;
    let mut cargo = cargo(root);
    cargo.args(["publish", "--workspace", "--dry-run", "--allow-dirty", "--locked"]);
    cargo.arg("--target-dir").arg(out.join("build"));
    run_command(&mut cargo)?;
    for entry in std::fs::read_dir(out.join("build/package"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "crate") {
            std::fs::rename(&path, out.join(path.file_name().context("a name")?))?;
        }
    }
    std::fs::remove_dir_all(out.join("build"))?;
    Ok(())
}

/// The version that all have.
pub(super) fn version(root: &Path) -> Result<String> {
    let packages = published(root)?;
    let version = |package: &Value| package["version"].as_str().unwrap_or_default().to_owned();
    let first = packages.first().map(version).context("no crate may be published")?;
    match packages.iter().find(|package| version(package) != first) {
        None => Ok(first),
        Some(other) => bail!("{} has version {}, others {first}", name(other), version(other)),
    }
}

/// The crates that may be published, as cargo tells of them.
fn published(root: &Path) -> Result<Vec<Value>> {
    let mut cargo = cargo(root);
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
    let metadata: Value = serde_json::from_slice(&output(&mut cargo)?)?;
    let packages = metadata["packages"].as_array().context("cargo tells of no package")?;
    // An empty list is `publish = false`.
    Ok(packages.iter().filter(|package| package["publish"].is_null()).cloned().collect())
}

/// Fields that a registry would miss in a crate.
fn problems(package: &Value) -> Vec<String> {
    let name = name(package);
    let mut problems = Vec::new();
    for key in ["description", "license", "readme", "rust_version"] {
        if package[key].as_str().is_none_or(str::is_empty) {
            problems.push(format!("{name}: no {key}"));
        }
    }
    for key in ["keywords", "categories"] {
        if package[key].as_array().is_none_or(Vec::is_empty) {
            problems.push(format!("{name}: no {key}"));
        }
    }
    // Those of tests that have no version are left out of what is packaged.
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    for dependency in dependencies.filter(|dependency| dependency["kind"] != "dev") {
        if dependency["path"].is_string() && dependency["req"] == "*" {
            problems.push(format!("{name}: {} has no version", dependency["name"]));
        }
    }
    problems
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crate_that_lacks_something_is_told() {
        let whole = json!({
            "name": "a", "description": "d", "license": "MIT", "readme": "README.md",
            "rust_version": "1.88", "keywords": ["rpc"], "categories": ["network-programming"],
            "dependencies": [{ "name": "b", "path": "/b", "req": "^0.1", "kind": null }],
        });
        assert_eq!(problems(&whole), Vec::<String>::new());
        let mut lacking = whole.clone();
        lacking["readme"] = Value::Null;
        lacking["keywords"] = json!([]);
        lacking["dependencies"][0]["req"] = json!("*");
        assert_eq!(problems(&lacking).len(), 3);
        lacking["dependencies"][0]["kind"] = json!("dev");
        assert_eq!(problems(&lacking).len(), 2);
    }
}
