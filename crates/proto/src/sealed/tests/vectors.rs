//! Packets of fixed keys, as text, and the files that have them.

use super::{Keys, Sent};

/// Keys, and packets under them, as text.
pub(super) fn vectors(keys: &Keys, log: &[Sent]) -> String {
    let mut text = format!("keys {}\n", keys.to_text().replace('\n', "|"));
    for sent in log {
        let bytes: String = sent.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{} {} {bytes}\n", sent.from, sent.to);
    }
    text
}

/// Are these the vectors in a file of `conformance/sealed`?
pub(super) fn check_vectors(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../conformance/sealed")
        .join(file);
    if std::env::var_os("UPDATE_CONFORMANCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "UPDATE_CONFORMANCE=1 writes the packets anew");
}
