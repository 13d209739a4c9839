//! Debian's package, by dpkg-deb: the command, its manual pages, units of systemd, what completes
//! its command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Arch, output, recreate, run_command};

/// Contents of a package.
pub(super) struct Contents<'a> {
    /// The checkout.
    pub(super) root: &'a Path,
    /// The command.
    pub(super) binary: &'a Path,
    /// Manual pages and completions.
    pub(super) docs: &'a Path,
}

/// Builds a package into `out`; its path.
pub(super) fn build(
    contents: &Contents<'_>,
    (arch, version): (Arch, &str),
    out: &Path,
) -> Result<PathBuf> {
    let stage = out.join(format!("deb-{}", arch.short()));
    recreate(&stage)?;
    place(&stage, "usr/bin/tailcut", contents.binary, 0o755)?;
    for unit in entries(&contents.root.join("tools/systemd"))? {
        place(&stage, "usr/lib/systemd/system/", &unit, 0o644)?;
    }
    let pages = entries(contents.docs)?;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "1")) {
        place(&stage, "usr/share/man/man1/", page, 0o644)?;
    }
    let completions = contents.docs.join("tailcut.bash");
    place(&stage, "usr/share/bash-completion/completions/tailcut", &completions, 0o644)?;
    let notices = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| contents.root.join(name));
    let notices = notices.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    write(&stage, "usr/share/doc/tailcut/copyright", &notices.join("\n\n"), 0o644)?;
    place(&stage, "usr/share/doc/tailcut/changelog", &contents.root.join("CHANGELOG.md"), 0o644)?;
    zip(&stage.join("usr/share/man/man1"))?;
    zip(&stage.join("usr/share/doc/tailcut/changelog"))?;
    write(&stage, "DEBIAN/control", &control(arch, version, size_kib(&stage)?), 0o644)?;
    for script in ["DEBIAN/postinst", "DEBIAN/postrm"] {
        write(&stage, script, RELOAD, 0o755)?;
    }
    let package = out.join(format!("tailcut_{version}_{}.deb", arch.short()));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&stage).arg(&package);
    output(&mut pack).context("dpkg-deb is needed, of Debian's package dpkg")?;
    println!("dist: {}", package.display());
    Ok(package)
}

/// Copies a file to a path below `stage`, which keeps its name where that ends with a slash.
fn place(stage: &Path, path: &str, from: &Path, mode: u32) -> Result<()> {
    let name = from.file_name().context("a file")?;
    let to = stage.join(path);
    let to = if path.ends_with('/') { to.join(name) } else { to };
    fs::create_dir_all(to.parent().context("a directory")?)?;
    fs::copy(from, &to).with_context(|| format!("cannot take {}", from.display()))?;
    set_mode(&to, mode)
}

fn write(stage: &Path, path: &str, text: &str, mode: u32) -> Result<()> {
    let to = stage.join(path);
    fs::create_dir_all(to.parent().context("a directory")?)?;
    fs::write(&to, text)?;
    set_mode(&to, mode)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Compresses a file, or all of a directory, with no time in it.
fn zip(path: &Path) -> Result<()> {
    run_command(Command::new("gzip").args(["-9", "--no-name", "--recursive"]).arg(path))
}

fn size_kib(stage: &Path) -> Result<u64> {
    let text = String::from_utf8(output(Command::new("du").args(["-sk"]).arg(stage))?)?;
    text.split_whitespace().next().context("du tells no size")?.parse().context("du's size")
}

/// The files of a directory, by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let listing =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut paths = listing.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn control(arch: Arch, version: &str, size_kib: u64) -> String {
    let arch = arch.short();
    format!(
        "Package: tailcut\n\
         Version: {version}\n\
         Architecture: {arch}\n\
         Maintainer: The tailcut authors <tailcut@localhost>\n\
         Installed-Size: {size_kib}\n\
         Section: net\n\
         Priority: optional\n\
         Description: microsecond RPCs with a short tail: router, bridge, instrument\n \
         One command that schedules requests over servers, puts existing Redis, memcached\n \
         and HTTP servers behind such a router, and measures any of them soundly.\n"
    )
}

/// Tells systemd that there are other units, where it runs. None is started: each wants an address
/// first.
const RELOAD: &str = "#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
";

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    /// A package whose command is a script, in a directory of its own.
    fn package(directory: &Path) -> PathBuf {
        recreate(directory).unwrap();
        let docs = directory.join("docs");
        fs::create_dir(&docs).unwrap();
        fs::write(docs.join("tailcut-route.1"), ".TH tailcut-route 1\n").unwrap();
        fs::write(docs.join("tailcut.bash"), "complete tailcut\n").unwrap();
        let binary = directory.join("tailcut");
        fs::write(&binary, "#!/bin/sh\necho tailcut\n").unwrap();
        let root = root();
        let contents = Contents { root: &root, binary: &binary, docs: &docs };
        build(&contents, (Arch::X86_64, "0.1.0"), directory).unwrap()
    }

    #[test]
    fn a_package_is_installed_and_removed() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            println!("SKIPPED: no dpkg-deb");
            return;
        }
        let directory = std::env::temp_dir().join(format!("tailcut-deb-{}", std::process::id()));
        let package = package(&directory);
        let field = Command::new("dpkg-deb").arg("--field").arg(&package).arg("Version").output();
        assert_eq!(String::from_utf8(field.unwrap().stdout).unwrap().trim(), "0.1.0");
        let system = directory.join("system");
        fs::create_dir_all(system.join("var/lib/dpkg/info")).unwrap();
        fs::create_dir_all(system.join("var/lib/dpkg/updates")).unwrap();
        fs::write(system.join("var/lib/dpkg/status"), "").unwrap();
        let dpkg = |words: &[&str]| {
            let mut dpkg = Command::new("dpkg");
            dpkg.arg("--root").arg(&system).arg(format!("--log={}/log", system.display()));
            dpkg.args(["--force-not-root", "--force-script-chrootless", "--force-architecture"]);
            output(dpkg.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(words)).unwrap();
        };
        dpkg(&["--install", package.to_str().unwrap()]);
        for path in [
            "usr/bin/tailcut",
            "usr/lib/systemd/system/tailcut-route.service",
            "usr/lib/systemd/system/tailcut-serve.socket",
            "usr/share/man/man1/tailcut-route.1.gz",
            "usr/share/doc/tailcut/copyright",
        ] {
            assert!(system.join(path).is_file(), "{path}");
        }
        let said = output(&mut Command::new(system.join("usr/bin/tailcut"))).unwrap();
        assert_eq!(said, b"tailcut\n");
        dpkg(&["--remove", "tailcut"]);
        assert!(
            !system.join("usr/bin/tailcut").exists() && !system.join("usr/lib/systemd").exists()
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}
