//! Tests of the pages in a browser, as a reader sees them: on a desktop and on a phone.

mod chromium;

use serde_json::Value;
use strum::VariantNames as _;
use tailcut_instrument::result::{MeasureResult, Reason};
use tailcut_measure::verdict;

use self::chromium::Chromium;
use crate::measure::sample;

/// Width of an A4 sheet within its margins, in CSS pixels.
const PAPER: u32 = 680;

/// Widths of a desktop and of a phone, in CSS pixels.
const WIDTHS: [u32; 2] = [1280, 390];

#[test]
fn nothing_is_cut_without_a_cue_and_every_reason_leads_to_its_explanation() {
    let Some(mut browser) = Chromium::start() else { return };
    for (name, page) in pages() {
        for width in WIDTHS {
            browser.show(&page, width);
            let faults = browser.evaluate(FAULTS);
            assert_eq!(faults, Value::Array(vec![]), "{name} at {width} px");
        }
    }
}

/// The other axis is seen in the place of the chart, at either width, and nothing of it is cut.
#[test]
fn a_switch_shows_the_other_axis() {
    let Some(mut browser) = Chromium::start() else { return };
    for (name, page) in pages().into_iter().filter(|(name, _)| *name != "the demo") {
        for width in WIDTHS {
            browser.show(&page, width);
            let before = browser.evaluate(SHOWN);
            let switches = browser.evaluate(
                "[...document.querySelectorAll('.switch input')].map(s => s.click()).length",
            );
            assert!(switches.as_u64() > Some(0), "{name}");
            let after = browser.evaluate(SHOWN);
            let count = |shown: &Value| shown.as_array().map(Vec::len);
            assert_eq!(count(&before), count(&after), "{name} at {width} px: a chart each");
            assert_ne!(before, after, "{name} at {width} px");
            assert_eq!(browser.evaluate(FAULTS), Value::Array(vec![]), "{name} at {width} px");
        }
    }
}

/// On paper everything is there that a page holds, in letters and lines and not as pixels.
#[test]
fn a_page_prints_whole() {
    let Some(mut browser) = Chromium::start() else { return };
    for (name, page) in pages() {
        browser.show(&page, PAPER);
        browser.print_media();
        let faults = browser.evaluate(FAULTS_ON_PAPER);
        assert_eq!(faults, Value::Array(vec![]), "{name}");
        let pdf = browser.pdf();
        assert!(pdf.starts_with(b"%PDF-"), "{name}");
        let has = |part: &str| pdf.windows(part.len()).any(|bytes| bytes == part.as_bytes());
        assert!(has("/FontFile"), "{name}: its letters are letters");
        assert!(
            !has("/Subtype /Image") && !has("/Subtype/Image"),
            "{name}: nothing of it is pixels"
        );
    }
}

#[test]
fn the_check_finds_what_is_cut_and_what_leads_nowhere() {
    let Some(mut browser) = Chromium::start() else { return };
    for (body, expected) in [
        ("<p style='width: 900px'>wide</p>", "P is cut at the right edge"),
        ("<p style='width: 50px; overflow: hidden'>Unbreakable</p>", "P hides what is wider"),
        ("<div class='scroll'><p style='width: 900px'>x</p></div>", "has no cue that it scrolls"),
        ("<svg width='90' height='20'><text x='80' y='9'>label</text></svg>", "label leaves its"),
        ("<a href='#gone'>x</a>", "#gone leads nowhere"),
        ("<div class='verdict'><li><b>errors</b></li></div>", "errors is not explained"),
    ] {
        browser.show(&format!("<!doctype html>{HEAD}{body}"), 390);
        let faults = browser.evaluate(FAULTS).to_string();
        assert!(faults.contains(expected), "{body}: {faults}");
    }
}

const HEAD: &str = "<meta name='viewport' content='width=device-width, initial-scale=1'>\
                    <style>body { margin: 0 } .scroll { overflow-x: auto }</style>";

/// Each kind of page, of what makes it longest.
fn pages() -> Vec<(&'static str, String)> {
    let full = with_every_reason(sample::full());
    let render = |result| crate::measure::page::render(result).expect("a page");
    vec![
        ("a result", render(&sample::single())),
        ("a result with every reason", render(&full)),
        ("a comparison", crate::compare::page_of_samples(sample::single(), full)),
        ("the demo", crate::demo::page_of_samples()),
        ("a sweep", crate::sim::page_of_samples()),
    ]
}

fn with_every_reason(mut result: MeasureResult) -> MeasureResult {
    let reason = |name: &&str| Reason {
        name: (*name).to_owned(),
        what: "p99 is known to within 13.7 %, and 10.0 % was asked for".to_owned(),
        advice: "Measure for longer, or ask for a lower percentile.".to_owned(),
    };
    result.point.verdict.reasons = verdict::Reason::VARIANTS.iter().map(reason).collect();
    result
}

/// The charts that are seen: what each has on its axes.
const SHOWN: &str = "[...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width)\
    .map(svg => [...svg.querySelectorAll('text.faint')].map(text => text.textContent).join(' '))";

/// Faults of a page on paper: what is missing, or is there although nobody can use it; a list of
/// sentences.
const FAULTS_ON_PAPER: &str = r#"(() => {
  const faults = [], width = document.documentElement.clientWidth;
  const is_seen = element => element.checkVisibility({ contentVisibilityAuto: true })
    && element.getBoundingClientRect().height > 0;
  const name = element => `${element.tagName} ${(element.textContent ?? "").trim().slice(0, 40)}`;
  for (const element of document.querySelectorAll("li, td, th, p, pre, figcaption, dd, .wide:not(.other)"))
    if (!is_seen(element) && !element.closest(".narrow, .other, .switch") && !element.querySelector("a[download]"))
      faults.push(`${name(element)} is not printed`);
  for (const element of document.querySelectorAll(".narrow, .switch, a[download]"))
    if (is_seen(element)) faults.push(`${name(element)} is printed`);
  for (const element of document.body.querySelectorAll("*"))
    if (element.getBoundingClientRect().right > width + 1) faults.push(`${name(element)} is cut`);
  if (getComputedStyle(document.body).color != "rgb(31, 35, 40)") faults.push("it is not dark on white");
  return faults;
})()"#;

/// Faults of the page that is shown: a list of sentences.
const FAULTS: &str = r#"(() => {
  const faults = [], width = document.documentElement.clientWidth;
  const name = element => `${element.tagName} ${(element.textContent ?? "").trim().slice(0, 40)}`;
  // Backgrounds that move with the content hide those that stay, where there is no more to see.
  const has_cue = style =>
    style.overflowX == "auto" && /local.*scroll/.test(style.backgroundAttachment);
  for (const more of document.querySelectorAll("details")) more.open = true;
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (box.width == 0 || element.closest("defs")) continue;
    const scroller = element.closest(".scroll");
    if (!scroller && (box.right > width + 1 || box.left < -1))
      faults.push(`${element.tagName} is cut at the right edge: ${name(element)}`);
    if (element.closest("svg")) {
      const chart = element.closest("svg").getBoundingClientRect();
      if (element.tagName == "text" && (box.left < chart.left - 1 || box.right > chart.right + 1
          || box.top < chart.top - 1 || box.bottom > chart.bottom + 1))
        faults.push(`${element.textContent} leaves its chart`);
      continue;
    }
    if (style.display == "inline" || element.scrollWidth <= element.clientWidth + 1) continue;
    if (element.classList.contains("scroll")) {
      if (!has_cue(style)) faults.push(`${name(element)} has no cue that it scrolls`);
    } else if (!scroller)
      faults.push(`${element.tagName} hides what is wider: ${name(element)}`);
  }
  for (const link of document.querySelectorAll("a[href^='#']")) {
    const target = document.getElementById(link.hash.slice(1));
    if (!target?.getBoundingClientRect().height) faults.push(`${link.hash} leads nowhere`);
  }
  for (const reason of document.querySelectorAll(".verdict li > b"))
    if (!reason.querySelector("a")) faults.push(`${reason.textContent} is not explained`);
  return faults;
})()"#;
