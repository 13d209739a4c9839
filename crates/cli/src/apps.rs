//! `tailcut apps`: what `--app` of `tailcut measure` takes.
//!
//! Invariant: help, manual and this command print one table, the registry's of `measure`.

use std::path::Path;

use anyhow::Result;
use tailcut_instrument::apps::{self, CODECS};
use tailcut_instrument::text_file::{self, CONFIG_BYTES_MAX};
use tailcut_measure::app::App;

use crate::output;

/// List the applications that `tailcut measure --app` asks for, with their options
///
/// Options follow the name and a colon, separated by commas. Put a value that contains a comma in
/// double quotes; in it \" \\ \r \n \t have their usual meaning.
#[derive(Debug, clap::Args)]
#[command(after_help = describe())]
pub(crate) struct Args {}

/// Prints the list.
pub(crate) fn run(_: &Args) -> Result<()> {
    output::print(&format!("{}\n", describe()))
}

/// Reads an application; with it, its text form that names no file of requests or of a body.
///
/// # Errors
///
/// What is wrong with it, for people.
pub(crate) fn parse(text: &str) -> Result<(App, String), String> {
    let mut read = |path: &str| {
        text_file::read_bytes(Path::new(path), CONFIG_BYTES_MAX)
            .map_err(|error| format!("{error:#}"))
    };
    let whole = App::with_files(text, &mut read).map_err(|error| error.to_string())?;
    let app = apps::parse(&whole);
    Ok((app.map_err(|error| error.to_string())?, whole))
}

/// The list, for help and manual.
pub(crate) fn describe() -> String {
    let mut text = String::from("Applications (--app):\n");
    for entry in CODECS.iter().copied().flatten() {
        text.push_str(&format!("  {}\n      {}\n", entry.form, entry.about));
        for option in entry.options.iter().copied().flatten() {
            text.push_str(&format!("      {}: {}\n", option.form, option.about));
        }
    }
    text.push_str("\nAs in:\n");
    for example in EXAMPLES {
        text.push_str(&format!("  --app '{example}'\n"));
    }
    text
}

/// Examples of what people ask for most.
const EXAMPLES: [&str; 10] = [
    "redis:keys=1M,pick=zipf:0.99,get=1",
    "redis:command=HGET {key} f,preload=HSET {key} f {value}",
    "memcached-ascii:etc,keys=100k",
    "http:/items?id=7,header=Accept: application/json",
    "http:POST:/items,header=Content-Type: application/json,body=@item.json",
    "http:@requests.txt",
    "http2:/items?id=7",
    "grpc:helloworld.Greeter/SayHello,message=@hello.bin",
    "postgres:query=SELECT v FROM kv WHERE k = $1,param={index}",
    "echo:64",
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_list_has_every_application_and_option() {
        let text = describe();
        for entry in CODECS.iter().copied().flatten() {
            assert!(text.contains(entry.form) && text.contains(entry.about), "{}", entry.name);
            for option in entry.options.iter().copied().flatten() {
                assert!(text.contains(&format!("{}: {}", option.form, option.about)), "{option:?}");
            }
        }
    }

    #[test]
    fn the_page_has_every_application_and_option() {
        let page = include_str!("../../../docs/apps.md");
        for entry in CODECS.iter().copied().flatten() {
            let heading = format!("`{}`", entry.name);
            assert!(page.contains(&heading), "docs/apps.md does not name {heading}");
            for option in entry.options.iter().copied().flatten() {
                let form = format!("`{}`", option.form);
                let form = form.replace('|', "\\|");
                assert!(page.contains(&form), "docs/apps.md does not name {form}");
            }
        }
    }

    #[test]
    fn examples_are_read() {
        for example in EXAMPLES.iter().filter(|example| !example.contains('@')) {
            parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
        }
    }

    #[test]
    fn a_body_and_a_list_come_from_files() {
        let directory = std::env::temp_dir().join(format!("tailcut-{}-apps", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let body = file("body.json", "{\"a\": 1}");
        let list = file("list.txt", &format!("9 /a\n1 POST:/b,body=@{body}\n"));
        let (app, text) = parse(&format!("http:@{list}")).unwrap();
        assert_eq!(
            app.to_string(),
            r#"http:requests="9 GET:/a\n1 method=POST,path=/b,body=\"{\\\"a\\\": 1}\"""#
        );
        assert!(!text.contains('@'), "{text}");
        fs::remove_dir_all(&directory).unwrap();
        let error = parse(&format!("http:@{list}")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
