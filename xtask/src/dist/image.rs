//! An image of the command alone, for both processors: a tar file in OCI's layout, which registries
//! and container engines read. Written with tar, gzip and sha256sum; the same files give the same
//! bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Arch, output, recreate, run_command};

/// Writes an image of `binaries` to `path`.
pub(super) fn build(binaries: &[(Arch, PathBuf)], version: &str, path: &Path) -> Result<()> {
    let stage = path.with_extension("stage");
    recreate(&stage.join("blobs/sha256"))?;
    let mut manifests = Vec::new();
    for (arch, binary) in binaries {
        manifests.push(manifest(&stage, *arch, binary)?);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut named = add(&stage, index.to_string().as_bytes(), INDEX)?;
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
    let outer = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    fs::write(stage.join("index.json"), outer.to_string())?;
    fs::write(stage.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let names = ["oci-layout", "index.json", "blobs"];
    run_command(tar(path).arg("--directory").arg(&stage).args(names))?;
    fs::remove_dir_all(&stage)?;
    println!("dist: {}", path.display());
    Ok(())
}

/// Adds the image for one processor; what an index says of it.
fn manifest(stage: &Path, arch: Arch, binary: &Path) -> Result<Value> {
    let layer = stage.join("layer.tar");
    let files = stage.join("files");
    recreate(&files.join("usr/bin"))?;
    fs::copy(binary, files.join("usr/bin/tailcut"))?;
    run_command(tar(&layer).arg("--mode=u=rwx,go=rx").arg("--directory").arg(&files).arg("usr"))?;
    let diff_id = sha256(&layer)?;
    run_command(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(&layer))?;
    let zipped = stage.join("layer.tar.gz");
    let layer = add(stage, &fs::read(&zipped)?, LAYER)?;
    fs::remove_file(&zipped)?;
    fs::remove_dir_all(&files)?;
    let config = json!({
        "architecture": arch.short(),
        "os": "linux",
        // Nobody's rights: a router needs none.
        "config": { "User": "65534:65534", "Entrypoint": ["/usr/bin/tailcut"], "Cmd": ["help"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff_id}")] },
    });
    let config = add(stage, config.to_string().as_bytes(), CONFIG)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut described = add(stage, manifest.to_string().as_bytes(), MANIFEST)?;
    described["platform"] = json!({ "architecture": arch.short(), "os": "linux" });
    Ok(described)
}

/// Adds bytes under their digest; their descriptor.
fn add(stage: &Path, bytes: &[u8], media_type: &str) -> Result<Value> {
    let fresh = stage.join("fresh");
    fs::write(&fresh, bytes)?;
    let digest = sha256(&fresh)?;
    fs::rename(&fresh, stage.join("blobs/sha256").join(&digest))?;
    Ok(json!({
        "mediaType": media_type,
        "digest": format!("sha256:{digest}"),
        "size": bytes.len(),
    }))
}

fn sha256(path: &Path) -> Result<String> {
    let text = String::from_utf8(output(Command::new("sha256sum").arg(path))?)?;
    Ok(text.split_whitespace().next().context("sha256sum tells nothing")?.to_owned())
}

/// A tar file in which nothing of this machine is: no owner, no time, no order of a directory.
fn tar(path: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--file"]).arg(path);
    tar
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows digests from the index to the file, as whoever runs an image does.
    #[test]
    fn an_image_holds_the_command_for_each_processor() {
        let directory = std::env::temp_dir().join(format!("tailcut-oci-{}", std::process::id()));
        recreate(&directory).unwrap();
        let binaries = Arch::ALL.map(|arch| {
            let path = directory.join(arch.name());
            fs::write(&path, arch.name()).unwrap();
            (arch, path)
        });
        let path = directory.join("image.tar");
        build(&binaries, "0.1.0", &path).unwrap();
        let first = fs::read(&path).unwrap();
        build(&binaries, "0.1.0", &path).unwrap();
        assert!(first == fs::read(&path).unwrap(), "the same files give the same bytes");

        let layout = directory.join("layout");
        recreate(&layout).unwrap();
        let mut untar = Command::new("tar");
        run_command(untar.arg("-xf").arg(&path).arg("-C").arg(&layout)).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let blob = layout.join("blobs/sha256").join(digest);
            assert_eq!(sha256(&blob).unwrap(), digest);
            assert_eq!(fs::metadata(&blob).unwrap().len(), descriptor["size"].as_u64().unwrap());
            blob
        };
        let read =
            |path: PathBuf| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let outer = read(layout.join("index.json"));
        let index = read(blob(&outer["manifests"][0]));
        for (at, arch) in Arch::ALL.into_iter().enumerate() {
            let manifest = &index["manifests"][at];
            assert_eq!(manifest["platform"]["architecture"], arch.short());
            let manifest = read(blob(manifest));
            assert_eq!(read(blob(&manifest["config"]))["architecture"], arch.short());
            let layer = blob(&manifest["layers"][0]);
            let mut untar = Command::new("tar");
            let found = output(untar.args(["-xzOf"]).arg(layer).arg("usr/bin/tailcut")).unwrap();
            assert_eq!(found, arch.name().as_bytes());
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
