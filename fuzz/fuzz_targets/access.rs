//! A policy of who may call what: whatever the text is, it is refused, or decides each request as
//! one that reads its lines anew for each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_proto::sealed::{Access, CLIENT_MAX, METHOD_VERSION, method_number};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(access) = text.parse::<Access>() else { return };
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rules: Vec<_> = words.filter(|words| matches!(words[..], ["allow" | "deny", ..])).collect();
    let (mut clients, mut methods) = (vec![0, CLIENT_MAX], vec![None, Some(0)]);
    for rule in &rules {
        let numbers = rule[1].split([',', '-']).filter_map(|number| number.parse::<u32>().ok());
        let around = |number: u32| [number.saturating_sub(1), number, number + 1];
        clients.extend(numbers.flat_map(around).filter(|&number| number <= CLIENT_MAX));
        methods.extend(rule[2..].iter().map(|word| number_of(word)));
    }
    // Those of long texts are many.
    clients.truncate(64);
    methods.truncate(32);
    for &client in &clients {
        for &method in &methods {
            let request = method.map_or(Vec::new(), |method| {
                [&[METHOD_VERSION][..], &method.to_be_bytes()].concat()
            });
            let is = |verdict| rules.iter().any(|rule| names(rule, verdict, client, method));
            let expected = is("allow") && !is("deny");
            assert_eq!(
                access.check(client, &request, true).is_ok(),
                expected,
                "{client} {method:?}"
            );
        }
    }
});

/// True if a line says this of a request.
fn names(rule: &[&str], verdict: &str, client: u32, method: Option<u64>) -> bool {
    let is_client = rule[1] == "any"
        || rule[1].split(',').any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u32>().expect("it has been read");
            (number(first)..=number(last)).contains(&client)
        });
    let is_method =
        |word: &&str| *word == "*" || number_of(word).is_some_and(|number| method == Some(number));
    rule[0] == verdict && is_client && rule[2..].iter().any(is_method)
}

/// The number of a method; `None` for all.
fn number_of(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => (word != "*").then(|| method_number(word)),
    }
}
