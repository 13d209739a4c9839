//! Output of the generator, and what it refuses.

use std::path::{Path, PathBuf};

use tailcut_build::{Error, configure};

/// Result of compiling a .proto's text.
fn compile(name: &str, text: &str) -> Result<String, Error> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory for tests");
    let proto = directory.join("trial.proto");
    std::fs::write(&proto, text).expect("a file for tests");
    configure().out_dir(&directory).compile(&[&proto], &[&directory])?;
    Ok(read(&directory.join("trial.rs")))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the generated code")
}

/// A .proto whose one service has this method.
fn service(method: &str) -> String {
    format!(
        "syntax = \"proto3\"; package trial; message Word {{ string text = 1; }}
         service Words {{ {method} }}"
    )
}

#[test]
fn a_service_has_a_definition() {
    let code = compile("plain", &service("rpc Turn (Word) returns (Word);")).expect("code");
    assert!(code.contains("::tailcut_services::service!"), "{code}");
    assert!(code.contains("turn(super::Word) -> super::Word = \"Turn\";"), "{code}");
    for module in ["words_service", "words_server", "words_client"] {
        assert!(code.contains(&format!("pub mod {module}")), "{module} in {code}");
    }
}

#[test]
fn idempotency_is_the_proto_s() {
    for (level, is_idempotent) in
        [("NO_SIDE_EFFECTS", true), ("IDEMPOTENT", true), ("IDEMPOTENCY_UNKNOWN", false)]
    {
        let option = format!("option idempotency_level = {level};");
        let method = format!("rpc Turn (Word) returns (Word) {{ {option} }}");
        let code = compile(level, &service(&method)).expect("code");
        assert_eq!(code.contains("\"Turn\", idempotent;"), is_idempotent, "{level}: {code}");
    }
}

#[test]
fn a_comment_is_the_method_s_doc() {
    let code = compile("comment", &service("\n// Turns it.\nrpc Turn (Word) returns (Word);"));
    assert!(code.expect("code").contains("Turns it."));
}

#[test]
fn a_method_that_streams_is_refused_by_its_path() {
    for (name, method) in [
        ("to", "rpc Turn (stream Word) returns (Word);"),
        ("from", "rpc Turn (Word) returns (stream Word);"),
    ] {
        let error = compile(name, &service(method)).expect_err("it streams").to_string();
        assert!(error.starts_with("/trial.Words/Turn streams"), "{error}");
    }
}

#[test]
fn what_is_no_proto_is_refused_by_place() {
    let error = compile("broken", "syntax = \"proto3\"; package trial; massage Word {}");
    let error = error.expect_err("not a .proto").to_string();
    assert!(error.contains("massage") || error.contains("expected"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let error = configure().out_dir(directory).compile(&["nowhere.proto"], &[directory]);
    assert!(error.expect_err("no file").to_string().contains("nowhere.proto"));
}
