//! The command as one static file: musl's C library, and nothing that debuggers read.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{Arch, run_command};
use crate::wasm::StandardLibrary;

/// Tools that build for both processors: cargo-zigbuild, by which Zig compiles the C of aws-lc and
/// links.
pub(super) struct Tools {
    /// A directory of programs that comes first, where they are ours.
    programs: Option<PathBuf>,
}

impl Tools {
    /// Those of this machine; or those of Python's registry, which has both, in an environment of
    /// their own.
    pub(super) fn find(out: &Path) -> Result<Self> {
        let is_here = Command::new("cargo-zigbuild").arg("--version").output().is_ok();
        if is_here {
            return Ok(Self { programs: None });
        }
        let environment = out.join("tools");
        let programs = environment.join("bin");
        if !programs.join("cargo-zigbuild").exists() {
            let hint = "cargo-zigbuild is needed, or Python's venv, by which it is installed";
            run_command(Command::new("python3").args(["-m", "venv"]).arg(&environment))
                .context(hint)?;
            let packages = ["install", "--quiet", "cargo-zigbuild", "ziglang"];
            run_command(Command::new(programs.join("pip")).args(packages)).context(hint)?;
        }
        Ok(Self { programs: Some(programs) })
    }

    fn path(&self) -> Result<std::ffi::OsString> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let first = self.programs.iter().cloned();
        Ok(std::env::join_paths(first.chain(std::env::split_paths(&path)))?)
    }
}

/// Builds the command to `path`.
pub(super) fn build(root: &Path, tools: &Tools, arch: Arch, path: &Path) -> Result<()> {
    let triple = arch.triple();
    let library = StandardLibrary::find(&triple)?;
    let target_dir = path.parent().context("a directory")?.join("build");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env("PATH", tools.path()?);
    cargo.args(["zigbuild", "--locked", "--profile", "dist", "--package", "tailcut-cli"]);
    cargo.args(["--bin", "tailcut", "--target", &triple, "--target-dir"]).arg(&target_dir);
    library.build_along(&mut cargo, "std,panic_unwind");
    if let StandardLibrary::Source = library {
        // What a C program begins with comes with rustup's library alone; Zig has its own.
        cargo.env("RUSTFLAGS", "-C link-self-contained=no");
    }
    run_command(&mut cargo)?;
    let built = target_dir.join(&triple).join("dist/tailcut");
    let bytes = std::fs::read(&built).with_context(|| format!("no {}", built.display()))?;
    check(&bytes).with_context(|| format!("{}", built.display()))?;
    std::fs::copy(&built, path)?;
    println!("dist: {} has {} bytes", path.display(), bytes.len());
    Ok(())
}

/// That a program needs nothing of the system that it runs on, and is not too long.
fn check(elf: &[u8]) -> Result<()> {
    ensure!(!has_interpreter(elf)?, "it is not static: it asks for a dynamic linker");
    ensure!(elf.len() <= LEN_MAX, "it has {} bytes, of at most {LEN_MAX}", elf.len());
    Ok(())
}

/// True if one of a program's headers names a dynamic linker.
fn has_interpreter(elf: &[u8]) -> Result<bool> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        bail!("no program of 64 bits");
    }
    let at = |start: usize, len: usize| -> Result<u64> {
        let bytes = elf.get(start..start + len).context("a program that is cut off")?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    };
    let (start, len, count) = (at(32, 8)? as usize, at(54, 2)? as usize, at(56, 2)? as usize);
    for index in 0..count {
        if at(start + index * len, 4)? == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A program header that names the dynamic linker.
const PT_INTERP: u64 = 3;

/// Longest that the command may be.
const LEN_MAX: usize = 12 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_linked_dynamically_is_told() {
        // This test is one.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(has_interpreter(&own).unwrap());
        assert!(check(&own).unwrap_err().to_string().contains("not static"));
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        assert!(has_interpreter(b"#!/bin/sh").is_err());
        assert!(has_interpreter(b"\x7fELF\x02\x01").is_err());
    }

    #[test]
    fn a_program_without_headers_is_static() {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(check(&elf).is_ok());
        elf.resize(LEN_MAX + 1, 0);
        assert!(check(&elf).unwrap_err().to_string().contains("bytes"));
    }
}
