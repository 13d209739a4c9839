//! In what two runs differ besides their latencies.
//!
//! Invariant: one setting that differs is what is compared; of several, none can be said to be the
//! cause.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::output::four_digits;
use tailcut_instrument::result::{Environment, Host, MeasureResult};

/// A setting in which the runs differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    /// Its keys, joined by dots.
    pub(super) key: String,
    /// Its values as JSON; absent where a run has no such setting.
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl Change {
    /// In a line.
    pub(super) fn describe(&self) -> String {
        format!(
            "{} is {} in A and {} in B",
            self.key,
            shown(self.before.as_ref()),
            shown(self.after.as_ref())
        )
    }
}

/// The settings in which two runs differ, but for those that say nothing of what was measured.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let [before, after] = [before, after].map(|config| {
        let mut settings = BTreeMap::new();
        flatten(config, String::new(), &mut settings);
        settings
    });
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |key: &String| {
        let (before, after) = (before.get(key).cloned(), after.get(key).cloned());
        (before != after).then(|| Change { key: key.clone(), before, after })
    };
    keys.into_iter().filter_map(change).collect()
}

/// Warnings that a difference cannot be laid to one cause.
pub(super) fn warnings(
    before: &MeasureResult,
    after: &MeasureResult,
    changes: &[Change],
) -> Vec<String> {
    let mut warnings = Vec::new();
    if changes.len() > 1 {
        let keys: Vec<&str> = changes.iter().map(|change| change.key.as_str()).collect();
        let keys = keys.join(", ");
        warnings.push(format!(
            "the runs differ in {} settings ({keys}): no difference can be laid to one of them",
            changes.len()
        ));
    }
    warnings.extend(environment_warnings(&before.environment, &after.environment));
    let used = [before, after].map(|result| &result.point.timestamps.used);
    if used[0] != used[1] {
        let [before, after] = used;
        warnings
            .push(format!("the timestamps are {before:?} in A and {after:?} in B: part of a difference is that of the clocks"));
    }
    let rates = [before, after].map(|result| result.point.rate_per_s);
    let is_near =
        |one: f64, other: f64| (one - other).abs() <= RATE_APART_MAX * one.abs().max(other.abs());
    if is_near(rates[0].offered, rates[1].offered) && !is_near(rates[0].achieved, rates[1].achieved)
    {
        let achieved = rates.map(|rates| four_digits(rates.achieved));
        warnings
            .push(format!("of the same load A answered {}/s and B {}/s", achieved[0], achieved[1]));
    }
    if !before.points.is_empty() || !after.points.is_empty() {
        warnings.push(
            "a file has several loads; compared is the one that answers its question".to_owned(),
        );
    }
    if before.point.histograms == after.point.histograms
        && before.environment.started == after.environment.started
    {
        warnings
            .push("both files hold the same run, which is not independent of itself".to_owned());
    }
    warnings
}

fn environment_warnings(before: &Environment, after: &Environment) -> Vec<String> {
    let mut warnings = Vec::new();
    if before.version != after.version {
        warnings.push(format!(
            "A was measured by tailcut {} and B by tailcut {}",
            before.version, after.version
        ));
    }
    // The name of a host says nothing; what it is does.
    let kinds = [before, after].map(|environment| {
        let kind = |host: &Host| Host { name: String::new(), ..host.clone() };
        environment.hosts.iter().map(kind).collect::<Vec<_>>()
    });
    if kinds[0] != kinds[1] {
        warnings.push(
            "the hosts that loaded differ in number, CPU, cores, kernel, governor or interface"
                .to_owned(),
        );
    }
    warnings
}

/// Each value that is no object under its keys.
fn flatten(value: &Value, key: String, settings: &mut BTreeMap<String, String>) {
    let Value::Object(members) = value else {
        settings.insert(key, value.to_string());
        return;
    };
    for (name, member) in members {
        if key.is_empty() && ASIDE.contains(&name.as_str()) {
            continue;
        }
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        flatten(member, key, settings);
    }
}

/// A value in a line, however long it is.
pub(super) fn shown(value: Option<&String>) -> String {
    let Some(value) = value else { return "not set".to_owned() };
    if value.chars().count() <= SHOWN_MAX {
        return value.clone();
    }
    value.chars().take(SHOWN_MAX).chain("...".chars()).collect()
}

/// Settings that say nothing of what was measured: where results go, what was drawn, limits on the
/// run, and what other settings say.
const ASIDE: [&str; 19] = [
    "assert",
    "command",
    "csv",
    "duration",
    "duration-max",
    "time-max",
    "duration-min",
    "hdr",
    "html",
    "i-own-this-target",
    "json",
    "live",
    "precision",
    "rate-max",
    "raw",
    "save-experiment",
    "seed",
    "target_address",
    "version",
];
/// Rates further apart than this share are different ones.
const RATE_APART_MAX: f64 = 0.01;
/// Letters.
const SHOWN_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::measure::sample;

    #[test]
    fn what_was_drawn_and_where_results_go_is_no_change() {
        let before =
            json!({ "seed": 1, "command": "tailcut measure", "json": "a.json", "app": "echo:64" });
        let after = json!({ "seed": 2, "command": "tailcut measure --seed 2", "json": "b.json", "app": "echo:64" });
        assert_eq!(changes(&before, &after), []);
    }

    #[test]
    fn a_change_names_its_setting() {
        let before = json!({ "app": "echo:64", "load": { "rate": 1000.0 } });
        let after = json!({ "app": "echo:64", "load": { "rate": 2000.0 }, "tls": true });
        let described: Vec<String> =
            changes(&before, &after).iter().map(Change::describe).collect();
        assert_eq!(
            described,
            ["load.rate is 1000.0 in A and 2000.0 in B", "tls is not set in A and true in B"]
        );
    }

    #[test]
    fn one_change_is_what_is_compared_and_two_are_a_warning() {
        let mut other = another();
        other.config["transport"] = json!("udp");
        assert_eq!(warned(&other), Vec::<String>::new());
        other.config["app"] = json!("echo:128");
        let warning = "the runs differ in 2 settings (app, transport): no difference can be laid to one of them";
        assert_eq!(warned(&other), [warning]);
    }

    #[test]
    fn what_else_differs_is_a_warning() {
        check(
            |result| result.environment.version = "9.9.9".into(),
            "A was measured by tailcut 0.1.0 and B by tailcut 9.9.9",
        );
        check(
            |result| result.environment.hosts[0].kernel = "7.0".into(),
            "the hosts that loaded differ",
        );
        check(
            |result| result.point.timestamps.used = "user".into(),
            "the timestamps are \"kernel\" in A and \"user\" in B",
        );
        check(
            |result| result.point.rate_per_s.achieved = 30_000.0,
            "of the same load A answered 49796/s and B 30000/s",
        );
        check(|result| result.points = vec![result.point.clone()], "a file has several loads");
        check(|result| *result = sample::single(), "both files hold the same run");
    }

    #[test]
    fn the_name_of_a_host_may_differ() {
        let mut other = another();
        other.environment.hosts[0].name = "another".into();
        assert_eq!(warned(&other), Vec::<String>::new());
    }

    fn check(change: impl Fn(&mut MeasureResult), part: &str) {
        let mut other = another();
        change(&mut other);
        let warnings = warned(&other);
        assert!(warnings.len() == 1 && warnings[0].contains(part), "{warnings:?}");
    }

    fn warned(other: &MeasureResult) -> Vec<String> {
        let first = sample::single();
        warnings(&first, other, &changes(&first.config, &other.config))
    }

    /// A copy of the measurement, a day later.
    fn another() -> MeasureResult {
        let mut another = sample::single();
        another.environment.started = "2026-11-23T04:34:56Z".into();
        another
    }
}
