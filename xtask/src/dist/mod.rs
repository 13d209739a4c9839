//! `cargo xtask dist`: what a release consists of, in `target/dist`.
//!
//! | file | what |
//! |---|---|
//! | `tailcut-VERSION-ARCH` | the command, static: it runs on any Linux of that processor |
//! | `tailcut_VERSION_ARCH.deb` | the same with manual pages, units of systemd, and what completes its command line |
//! | `tailcut-VERSION.oci.tar` | an image of it alone for both processors, as OCI lays them out, written without a daemon |
//! | `crates/*.crate` | the crates, as a registry would get them; nothing is published |
//!
//! `--check` looks at what costs nothing: that crates have what a registry asks for.

mod binary;
mod crates;
mod deb;
mod image;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A processor that is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// As uname says it.
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// As Debian and OCI say it.
    fn short(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    fn triple(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }
}

/// Builds a release.
pub(crate) fn run(root: &Path) -> Result<()> {
    crates::check(root)?;
    let version = crates::version(root)?;
    let out = out_dir(root);
    std::fs::create_dir_all(&out)?;
    let tools = binary::Tools::find(&out)?;
    let mut binaries = Vec::new();
    for arch in Arch::ALL {
        let path = out.join(format!("tailcut-{version}-{}", arch.name()));
        binary::build(root, &tools, arch, &path)?;
        binaries.push((arch, path));
    }
    let docs = out.join("docs");
    let (_, runs_here) = binaries
        .iter()
        .find(|(arch, _)| arch.name() == std::env::consts::ARCH)
        .context("a release is made on one of the processors that it is for")?;
    write_docs(runs_here, &docs)?;
    for (arch, binary) in &binaries {
        let contents = deb::Contents { root, binary, docs: &docs };
        deb::build(&contents, (*arch, &version), &out)?;
    }
    image::build(&binaries, &version, &out.join(format!("tailcut-{version}.oci.tar")))?;
    crates::package(root, &out.join("crates"))?;
    println!("dist: {}", out.display());
    Ok(())
}

/// Looks at what costs nothing.
pub(crate) fn check(root: &Path) -> Result<()> {
    crates::check(root)?;
    crates::list(root)
}

/// The manual pages and completions, by the command itself.
fn write_docs(binary: &Path, docs: &Path) -> Result<()> {
    recreate(docs)?;
    output(Command::new(binary).arg("man").arg(docs))?;
    let completions = output(Command::new(binary).args(["completions", "bash"]))?;
    std::fs::write(docs.join("tailcut.bash"), completions)?;
    Ok(())
}

fn out_dir(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| root.join("target"), |target| root.join(target)).join("dist")
}

/// An empty directory.
fn recreate(directory: &Path) -> Result<()> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))
}

/// Runs a command, whose output goes where ours does.
fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs a command; its standard output.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
