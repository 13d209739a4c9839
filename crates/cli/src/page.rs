//! Pages for a browser: one file each, that loads nothing from anywhere.
//!
//! A page is a template of its own that puts `style` into its head; all text in it is escaped.

pub(crate) mod sections;

use anyhow::{Context, Result};
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::chart::{self, Chart, Growth, LineChart, NARROW, Theme, WIDE};

/// A chart in both widths, under its title.
#[derive(Debug, Serialize)]
pub(crate) struct Drawn {
    title: String,
    wide: String,
    narrow: String,
    /// Below it; empty where it speaks for itself.
    caption: String,
    /// Its curves on another axis, which a reader may have in its place.
    other: Option<Other>,
}

/// A chart on another axis, in both widths.
#[derive(Debug, Serialize)]
struct Other {
    /// The axis, as a switch says it.
    label: &'static str,
    wide: String,
    narrow: String,
}

impl Drawn {
    /// The chart that `draw` draws for a width in pixels, at both widths.
    pub(crate) fn new(title: &str, draw: impl Fn(u32) -> Chart) -> Self {
        Self {
            title: title.to_owned(),
            wide: draw(WIDE).inline(),
            narrow: draw(NARROW).inline(),
            caption: String::new(),
            other: None,
        }
    }

    /// The chart that `chart` makes for a growth of its axes, with a switch for the reader between
    /// linear and logarithmic where the values can be drawn on both. `title` is what it says to
    /// those who do not see it, too.
    pub(crate) fn with_switch<'a>(
        title: &str,
        growth: Growth,
        chart: impl Fn(Growth) -> LineChart<'a>,
    ) -> Self {
        let (usual, log) = (chart(growth), chart(Growth::Log));
        let (other, label) = match usual.has_axes_of(&log) {
            true => (chart(Growth::Linear), "linear axis"),
            false => (log, "logarithmic axis"),
        };
        let draw = |width| other.draw(width, title.to_owned()).inline();
        let is_another = !usual.has_axes_of(&other);
        let other = is_another.then(|| Other { label, wide: draw(WIDE), narrow: draw(NARROW) });
        Self { other, ..Self::new(title, |width| usual.draw(width, title.to_owned())) }
    }

    /// Under another title than what it says to those who do not see it.
    pub(crate) fn titled(self, title: &str) -> Self {
        Self { title: title.to_owned(), ..self }
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
    environment
        .add_template("figure.html", include_str!("page/figure.html"))
        .context("the template of figures is broken")?;
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
