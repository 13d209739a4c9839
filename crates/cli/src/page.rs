//! Pages for a browser: one file each, that loads nothing from anywhere.
//!
//! A page is a template of its own that puts `style` into its head; all text in it is escaped.

use anyhow::{Context, Result};
use minijinja::{Environment, Value, context};

use crate::chart::{self, Theme};

/// The page of a template with its values, and with `style`: the rules for pages and for the charts in them.
pub(crate) fn render(template: &str, values: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.add_template("page.css", include_str!("page.css")).context("the style is broken")?;
    // The name tells that text is to be escaped.
    environment.add_template("page.html", template).context("the page's template is broken")?;
    let themes = context! { light => chart::style(Theme::Light), dark => chart::style(Theme::Dark) };
    let style = environment.get_template("page.css").and_then(|style| style.render(themes)).context("the style is broken")?;
    let page = environment.get_template("page.html").and_then(|page| page.render(context! { style, ..values }));
    page.context("the page's template is broken")
}
