//! Pages for a browser: one file each, that loads nothing from anywhere.
//!
//! A page is a template of its own that puts `style` into its head; all text in it is escaped.

pub(crate) mod sections;

use anyhow::{Context, Result};
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::chart::{self, Chart, NARROW, Theme, WIDE};

/// A chart in both widths, under its title.
#[derive(Debug, Serialize)]
pub(crate) struct Drawn {
    title: String,
    wide: String,
    narrow: String,
    /// Below it; empty where it speaks for itself.
    caption: String,
}

impl Drawn {
    /// The chart that `draw` draws for a width in pixels, at both widths.
    pub(crate) fn new(title: &str, draw: impl Fn(u32) -> Chart) -> Self {
        Self {
            title: title.to_owned(),
            wide: draw(WIDE).inline(),
            narrow: draw(NARROW).inline(),
            caption: String::new(),
        }
    }

    /// With a sentence below it.
    pub(crate) fn captioned(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }
}

/// The page of a template with its values, and with `style`: the rules for pages and for the charts
/// in them.
pub(crate) fn render(template: &str, values: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment
        .add_template("page.css", include_str!("page.css"))
        .context("the style is broken")?;
    // The name tells that text is to be escaped.
    environment.add_template("page.html", template).context("the page's template is broken")?;
    let themes =
        context! { light => chart::style(Theme::Light), dark => chart::style(Theme::Dark) };
    let style = environment
        .get_template("page.css")
        .and_then(|style| style.render(themes))
        .context("the style is broken")?;
    let page = environment
        .get_template("page.html")
        .and_then(|page| page.render(context! { style, ..values }));
    page.context("the page's template is broken")
}
