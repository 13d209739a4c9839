//! `tailcut sim sweep` as its user runs it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[test]
fn a_sweep_makes_a_row_for_each_point_and_a_page_with_curves() {
    let dir = Directory::new("all", SWEEP);
    let json = dir.succeed(&[]);
    assert_eq!(counts(&json), [6, 0, 0, 0]);
    let csv = dir.read("sweep.results/try.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("policy,load,"), "{csv}");
    assert!(lines[0].split(',').any(|name| name == "sojourn_over_service.p99"), "{csv}");
    let places: Vec<&str> = lines[1..].iter().map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(places, ["0.5", "0.7", "0.8", "0.5", "0.7", "0.8"], "{csv}");
    let page = dir.read("sweep.results/try.html");
    for part in [
        ">jbsq:2</text>",
        ">random</text>",
        "p99 of the sojourn time (mean service times)",
        "simulation = &quot;queue",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // A curve has as many corners as there are loads; the sample in the legend has two.
    let corners = |line: &str| {
        line.split_once("points=\"").map_or(0, |(_, points)| points.split(' ').count())
    };
    let curves = page.lines().filter(|line| line.starts_with("<polyline") && corners(line) == 3);
    assert_eq!(curves.count(), 8, "two curves on two axes, wide and narrow");
    let picture = dir.read("sweep.results/try.svg");
    let curves = picture.lines().filter(|line| line.starts_with("<polyline") && corners(line) == 3);
    assert_eq!(curves.count(), 2, "{picture}");
    assert_eq!(json["picture"], "sweep.results/try.svg");
}

#[test]
fn a_second_run_makes_only_what_is_missing_and_the_same_bytes() {
    let dir = Directory::new("resume", SWEEP);
    dir.succeed(&[]);
    let before = dir.results();
    fs::remove_file(dir.path(&format!("sweep.results/{}.json", dir.hashes()[3]))).unwrap();
    assert_eq!(counts(&dir.succeed(&[])), [1, 5, 0, 0]);
    assert_eq!(counts(&dir.succeed(&[])), [0, 6, 0, 0]);
    assert_eq!(dir.results(), before);
}

#[test]
fn a_broken_file_is_made_again() {
    let dir = Directory::new("broken", SWEEP);
    dir.succeed(&[]);
    let before = dir.results();
    let paths: Vec<String> =
        dir.hashes().iter().map(|hash| format!("sweep.results/{hash}.json")).collect();
    fs::write(dir.path(&paths[0]), &dir.read(&paths[0])[..100]).unwrap();
    fs::write(dir.path(&paths[1]), "").unwrap();
    fs::copy(dir.path(&paths[3]), dir.path(&paths[2])).unwrap();
    assert_eq!(counts(&dir.succeed(&[])), [3, 3, 0, 0]);
    assert_eq!(dir.results(), before);
}

#[test]
fn shards_make_every_point_once() {
    let dir = Directory::new("shards", SWEEP);
    let first = dir.succeed(&["--shard", "0/4"]);
    assert_eq!((counts(&first), &first["csv"]), ([2, 0, 0, 4], &Value::Null));
    assert_eq!(counts(&dir.succeed(&["--shard", "1/4"])), [2, 0, 0, 2]);
    assert_eq!(counts(&dir.succeed(&["--shard", "2/4"])), [1, 0, 0, 1]);
    let last = dir.succeed(&["--shard", "3/4"]);
    assert_eq!(
        (counts(&last), &last["csv"]),
        ([1, 0, 0, 0], &Value::from("sweep.results/try.csv"))
    );
}

#[test]
fn a_list_says_which_points_are_there_and_makes_nothing() {
    let dir = Directory::new("list", SWEEP);
    let done =
        || String::from_utf8(dir.run(&["--list"]).stdout).unwrap().matches("\"done\":true").count();
    assert_eq!(done(), 0);
    assert!(!dir.path("sweep.results").exists());
    dir.succeed(&["--shard", "1/3"]);
    assert_eq!(done(), 2);
}

#[test]
fn one_point_prints_the_file_that_a_sweep_writes() {
    let (dir, whole) = (Directory::new("point", SWEEP), Directory::new("point-whole", SWEEP));
    whole.succeed(&[]);
    for hash in dir.hashes() {
        let output = dir.run(&["--point", &hash, "--json", "-"]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            whole.read(&format!("sweep.results/{hash}.json"))
        );
    }
    assert_eq!(counts(&dir.succeed(&["--report-only"])), [0, 0, 0, 0]);
    assert_eq!(dir.results(), whole.results());
}

#[test]
fn a_report_of_a_part_is_refused() {
    let dir = Directory::new("part", SWEEP);
    dir.succeed(&["--shard", "0/2"]);
    let output = dir.run(&["--report-only"]);
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(1), "tailcut: 3 of 6 points are missing\n")
    );
}

#[test]
fn a_bad_flag_is_refused_before_anything_runs() {
    for (from, to, message) in [
        ("workers = 4", "wokers = 4", "unexpected argument '--wokers'"),
        ("0.8", "\"high\"", "invalid value 'high' for '--load"),
        ("jbsq:2", "fastest", "there are random, rr, jsq:D, jbsq:N"),
        ("[fixed]", "[fixed]\njson = \"a\"", "unexpected argument '--json'"),
    ] {
        let dir = Directory::new("bad-flag", &SWEEP.replace(from, to));
        let output = dir.run(&[]);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains(message) && stderr.contains("the point `tailcut sim queue --"),
            "{stderr}"
        );
        assert!(!dir.path("sweep.results").exists(), "{to}");
    }
}

#[test]
fn a_point_that_cannot_be_simulated_is_refused_before_anything_runs() {
    let dir = Directory::new("overload", &SWEEP.replace("0.8", "1.5"));
    let output = dir.run(&[]);
    let stderr = stderr(&output);
    assert!(
        stderr.contains("--load=1.5") && stderr.contains("the load must be above 0 and below 1"),
        "{stderr}"
    );
    assert!(!dir.path("sweep.results").exists());
}

#[test]
fn other_samples_are_other_points() {
    let dir = Directory::new("samples", SWEEP);
    let samples = dir.path("service.txt");
    fs::write(
        dir.path("sweep.toml"),
        SWEEP.replace("exp:1us", &format!("file:{}", samples.display())),
    )
    .unwrap();
    fs::write(&samples, "1us\n").unwrap();
    assert_eq!(counts(&dir.succeed(&[])), [6, 0, 0, 0]);
    fs::write(&samples, "1us\n2us\n").unwrap();
    assert_eq!(counts(&dir.succeed(&[])), [6, 0, 0, 0]);
    assert_eq!(counts(&dir.succeed(&[])), [0, 6, 0, 0]);
}

#[test]
fn a_sweep_of_homa_draws_the_p99_of_all_messages() {
    let sweep = "name = \"try\"\nsimulation = \"homa\"\n[fixed]\nworkload = \"w1\"\nhosts = 16\nduration = \"1ms\"\n\
        [grid]\npolicy = [\"sigcomm\", \"module\"]\nload = [0.3, 0.6]\n";
    let dir = Directory::new("homa", sweep);
    assert_eq!(counts(&dir.succeed(&[])), [4, 0, 0, 0]);
    let (csv, page) = (dir.read("sweep.results/try.csv"), dir.read("sweep.results/try.html"));
    let head = csv.lines().next().expect("it has a head");
    for figure in ["all.p99", "buckets.0.p99", "links.data_share"] {
        assert!(head.split(',').any(|name| name == figure), "{head}");
    }
    assert!(page.contains("all.p99") && page.contains(">module</text>"), "{head}");
}

/// The result of one point cannot be written, because a directory has its name.
#[test]
fn a_point_that_fails_is_named_and_leaves_the_others() {
    let dir = Directory::new("fails", SWEEP);
    let listed = dir.run(&["--list"]);
    let first: Value =
        serde_json::from_slice(listed.stdout.split(|&byte| byte == b'\n').next().unwrap())
            .expect("a line");
    let name = format!("{}.json", first["hash"].as_str().unwrap());
    fs::create_dir_all(dir.path("sweep.results").join(name)).unwrap();
    let output = dir.run(&["--json", "-"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json: Value =
        serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else");
    assert_eq!(counts(&json), [5, 0, 1, 1]);
    assert!(
        stderr(&output).contains("tailcut: 1 of 6 points failed; tailcut sim queue --load=0.5 "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_interrupted_sweep_goes_on_where_it_was() {
    let dir = Directory::new("interrupted", &SWEEP.replace("20000", "\"4M\""));
    let mut child = dir
        .command(&[])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let count = || dir.results().iter().filter(|(name, _)| name.ends_with(".json")).count();
    while count() == 0 && child.try_wait().expect("it is a child").is_none() {}
    let signalled =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(signalled.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("of 6 points are there, and the same command does the rest"),
        "{}",
        stderr(&output)
    );
    let left = count() as u64;
    assert_eq!(counts(&dir.succeed(&[])), [6 - left, left, 0, 0]);
}

/// Points that ran, were reused, failed, and are missing.
fn counts(json: &Value) -> [u64; 4] {
    ["ran", "reused", "failed", "missing"].map(|name| json["points"][name].as_u64().expect(name))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory below the tests' own with a sweep in it, emptied at the start.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str, sweep: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sweep-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the tests' directory can be written");
        fs::write(path.join("sweep.toml"), sweep).expect("the tests' directory can be written");
        Self(path)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailcut"));
        command.current_dir(&self.0).args(["sim", "sweep", "sweep.toml"]).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// The JSON of a run that succeeds.
    fn succeed(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json", "-"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else")
    }

    /// Hashes of all points, in the order of the grid.
    fn hashes(&self) -> Vec<String> {
        let output = self.run(&["--list"]);
        let lines = String::from_utf8(output.stdout).expect("it is text");
        let hash = |line: &str| {
            serde_json::from_str::<Value>(line).expect("a line is JSON")["hash"]
                .as_str()
                .map(str::to_owned)
        };
        let hashes: Vec<String> = lines.lines().filter_map(hash).collect();
        assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), 6, "{lines}");
        hashes
    }

    /// Every file of results with its content.
    fn results(&self) -> Vec<(String, String)> {
        let entries =
            fs::read_dir(self.path("sweep.results")).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
            .into_iter()
            .map(|name| (name.clone(), self.read(&format!("sweep.results/{name}"))))
            .collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("the sweep wrote it")
    }
}

const SWEEP: &str = r#"
name = "try"
simulation = "queue"
[fixed]
workers = 4
service = "exp:1us"
requests = 20000
[grid]
policy = ["jbsq:2", "random"]
load = [0.5, 0.7, 0.8]
[report]
x = "load"
y = "sojourn_over_service.p99"
series = "policy"
"#;
