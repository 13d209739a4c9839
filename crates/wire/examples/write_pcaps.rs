//! Writes the captures of `conformance/pcap` and the seeds of the packet fuzz targets:
//! `cargo run -p tailcut-wire --example write_pcaps`.

#[path = "../tests/it/golden/mod.rs"]
mod golden;

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in golden::files() {
        let path = root.join(&file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, &file.bytes)?;
        println!("{}", file.path);
    }
    Ok(())
}
