//! `tailcut sim reproduce` as its user runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

#[test]
fn a_reproduction_gives_verdicts_and_curves() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("reproduced");
    let _ = fs::remove_dir_all(&dir);
    let output = reproduce(&[
        "laedge",
        "--quick",
        "--json",
        "-",
        "--out",
        dir.to_str().expect("the path is text"),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value =
        serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else");
    assert_eq!(
        (&json["schema"], &json["config"]["widening"]),
        (&Value::from("tailcut.sim.reproduce/1"), &Value::from(4.0))
    );
    let verdicts = json["figures"][0]["verdicts"].as_array().expect("a list");
    assert_eq!(verdicts[0]["expected"], 73.0);
    assert_eq!(verdicts.iter().filter(|verdict| verdict["pass"] == true).count(), 5, "{json:#}");
    let csv = fs::read_to_string(dir.join("laedge.csv")).expect("the curves were written");
    assert!(
        csv.starts_with("panel,curve,kind,x,y\n")
            && csv.contains(",one slot a worker,obtained,800,"),
        "{csv}"
    );
    let svg = fs::read_to_string(dir.join("laedge.svg")).expect("the picture was written");
    assert!(svg.starts_with("<svg xmlns=") && svg.contains("<polyline class=\"line s2\""), "{svg}");
}

#[test]
fn an_unknown_figure_is_refused_with_those_that_exist() {
    let output = reproduce(&["figure-7"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("no figure is called figure-7; there are rpcvalet-queues, "),
        "{stderr}"
    );
}

fn reproduce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailcut"))
        .args(["sim", "reproduce"])
        .args(args)
        .output()
        .expect("the binary runs")
}
