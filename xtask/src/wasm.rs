//! `cargo xtask wasm`: wire, proto and measure compile to WebAssembly, and a module made of them
//! imports nothing.
//!
//! A module without imports has no way to reach a clock, a generator, a file or a socket, so this
//! proves that the three crates are sans-IO. The probe is a workspace of its own that is built with
//! the versions of the house's lock file.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use wasmparser::{Parser, Payload};

/// Builds the probe and the crates in it, and lists its imports; an error when there are any.
pub(crate) fn run(root: &Path) -> Result<()> {
    let standard_library = StandardLibrary::find(TRIPLE)?;
    let target_dir = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(dir));
    let target_dir = target_dir.join("wasm");

    let probe = root.join("xtask/wasm-probe");
    std::fs::copy(root.join("Cargo.lock"), probe.join("Cargo.lock"))
        .context("cannot give the probe its versions")?;
    build(&mut standard_library.cargo_build(&probe, &target_dir))?;

    let module: PathBuf =
        [target_dir.as_path(), TRIPLE.as_ref(), "debug/wasm_probe.wasm".as_ref()].iter().collect();
    let bytes =
        std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let imports = imports(&bytes)?;
    ensure!(
        imports.is_empty(),
        "wire, proto or measure is not sans-IO; the probe imports:\n{}",
        imports.join("\n")
    );
    println!("wasm: {} bytes of wire, proto and measure, no imports", bytes.len());
    Ok(())
}

/// Source of the standard library for another target.
pub(crate) enum StandardLibrary {
    /// rustup or the distribution installed it.
    Installed,
    /// Its source is here, and is built along.
    Source,
}

impl StandardLibrary {
    pub(crate) fn find(triple: &str) -> Result<Self> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output =
            Command::new(rustc).args(["--print", "sysroot"]).output().context("rustc is needed")?;
        ensure!(output.status.success(), "rustc does not tell its sysroot");
        let rustlib = Path::new(String::from_utf8(output.stdout)?.trim()).join("lib/rustlib");
        if rustlib.join(triple).join("lib").is_dir() {
            Ok(Self::Installed)
        } else if rustlib.join("src/rust/library/Cargo.lock").is_file() {
            Ok(Self::Source)
        } else {
            bail!(
                "no standard library for {triple}; `scripts/setup ci` installs that for {TRIPLE}. By hand: `rustup target add \
                 {triple}`, or its source, by `rustup component add rust-src` or Debian's rust-web-src"
            )
        }
    }

    /// `cargo build` for WebAssembly of the package or workspace at `directory`.
    fn cargo_build(&self, directory: &Path, target_dir: &Path) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(directory)
            // What it imports does not depend on how well it is optimized.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .args(["build", "--target", TRIPLE, "--target-dir"])
            .arg(target_dir);
        self.build_along(&mut cargo, "std,panic_abort");
        cargo
    }

    /// Has a build make parts of the standard library too, where only its source is here.
    pub(crate) fn build_along(&self, cargo: &mut Command, parts: &str) {
        if let Self::Source = self {
            // Building the standard library is unstable; a stable compiler allows it when told so.
            cargo.env("RUSTC_BOOTSTRAP", "1").arg(format!("-Zbuild-std={parts}"));
        }
    }
}

fn build(cargo: &mut Command) -> Result<()> {
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(status.success(), "the build for {TRIPLE} failed");
    Ok(())
}

/// Imports of a module, one `module.name` each.
fn imports(module: &[u8]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::ImportSection(section) = payload.context("not a WebAssembly module")? else {
            continue;
        };
        for import in section.into_imports() {
            let import = import?;
            found.push(format!("{}.{}", import.module, import.name));
        }
    }
    Ok(found)
}

const TRIPLE: &str = "wasm32-unknown-unknown";

#[cfg(test)]
mod tests {
    use super::*;

    /// A module header, then one section that holds one function type of no arguments and no
    /// results.
    const TYPES_ONLY: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0";

    #[test]
    fn a_module_without_an_import_section_imports_nothing() {
        assert_eq!(imports(TYPES_ONLY).expect("a module"), Vec::<String>::new());
    }

    #[test]
    fn an_import_is_listed() {
        // Section 2, 13 bytes: one import of module "env", name "clock", which is the function of
        // type 0.
        let module = [TYPES_ONLY, b"\x02\x0d\x01\x03env\x05clock\0\0"].concat();
        assert_eq!(imports(&module).expect("a module"), ["env.clock"]);
    }

    #[test]
    fn what_is_no_module_is_an_error() {
        assert!(imports(b"\x7fELF\x02\x01\x01\0").is_err());
    }
}
