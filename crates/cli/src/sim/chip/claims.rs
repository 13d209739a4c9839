//! The reference tables and the paper's claims, beside what is obtained.

use anyhow::Result;
use serde_json::{Value, json};
use tailcut_experiments::cores;
use tailcut_sim::chip::reference::{TAIL_CHIPS, TAILS, THROUGHPUT, THROUGHPUT_CHIPS};
use tailcut_sim::chip::workload::Preset;
use tailcut_sim::chip::{Chip, ChipError, Layout, simulate, slo_throughput};
use tailcut_sim::sojourn::Estimate;

use super::super::Outcome;
use super::{Runs, estimate_text};
use crate::output;

/// A question about one chip.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Question {
    chip: Chip,
    preset: Preset,
    ask: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    /// Throughput under a limit in ns; millions a second.
    Throughput(f64),
    /// 99th percentile at a load, ns.
    Tail(f64),
}

/// A question, what was reference of it, and what is obtained.
#[derive(Clone, Debug)]
struct Answer {
    question: Question,
    reference: Option<f64>,
    obtained: Estimate,
}

pub(super) fn run(runs: Runs) -> Result<Outcome> {
    let questions = questions();
    let seeds = runs.seeds as usize;
    // Every run of every question is a job of its own, so that all cores have work to the end.
    let jobs = cores::over_seeds(0, (questions.len() * seeds) as u64, |job| {
        let (question, _) = questions[job as usize / seeds];
        ask(question, runs.requests, runs.seed.wrapping_add(job % runs.seeds))
    });
    let values = jobs.into_iter().collect::<Result<Vec<f64>, _>>()?;
    let answers =
        questions.iter().zip(values.chunks(seeds)).map(|(&(question, reference), values)| Answer {
            question,
            reference,
            obtained: Estimate::of(values),
        });
    let answers: Vec<Answer> = answers.collect();
    let claims = claims(&answers);
    let json = json!({
        "schema": "tailcut.sim.chip.claims/1",
        "config": { "requests": runs.requests, "seed": runs.seed, "seeds": runs.seeds },
        "answers": answers.iter().map(answer_json).collect::<Vec<_>>(),
        "claims": claims.iter().map(|(claim, figures)| json!({ "paper": claim, "obtained": figures })).collect::<Vec<_>>(),
    });
    let lines: Vec<Vec<String>> = claims
        .into_iter()
        .map(|(claim, figures)| vec![claim.to_owned(), figures.join(", ")])
        .collect();
    let text = format!(
        "{}\n{}\n{}",
        throughput_text(&answers),
        tail_text(&answers),
        output::table(&lines, 2)
    );
    Ok(Outcome { json, text, failure: None })
}

/// Everything that the tables and the claims need, once.
fn questions() -> Vec<(Question, Option<f64>)> {
    let mut questions = Vec::new();
    for row in THROUGHPUT {
        let ask = Ask::Throughput(row.slo_ns);
        questions.push((Question { chip: IDEAL, preset: row.preset, ask }, None));
        let columns = THROUGHPUT_CHIPS.into_iter().zip(row.mrps);
        questions.extend(
            columns.map(|(chip, mrps)| (Question { chip, preset: row.preset, ask }, Some(mrps))),
        );
    }
    for row in TAILS {
        let ask = Ask::Tail(row.load);
        let columns = TAIL_CHIPS.into_iter().zip(row.p99_ns);
        questions.extend(
            columns
                .map(|(chip, p99_ns)| (Question { chip, preset: row.preset, ask }, Some(p99_ns))),
        );
    }
    for preset in CONVERGENT {
        for chip in [IDEAL, HARDWARE_1, HARDWARE, PRIVATE] {
            let question = Question { chip, preset, ask: Ask::Tail(CLAIM_LOAD) };
            if questions.iter().all(|(asked, _)| *asked != question) {
                questions.push((question, None));
            }
        }
    }
    questions
}

fn ask(question: Question, requests: usize, seed: u64) -> Result<f64, ChipError> {
    let workload = question.preset.workload();
    match question.ask {
        Ask::Throughput(slo_ns) => {
            Ok(slo_throughput(question.chip, &workload, slo_ns, requests, seed)?.throughput_mrps)
        }
        Ask::Tail(load) => {
            Ok(simulate(question.chip, &workload, load, requests, seed)?.latency_ns.p99)
        }
    }
}

/// The paper's claims, and the figures that answer to them.
fn claims(answers: &[Answer]) -> Vec<(&'static str, Vec<String>)> {
    let value = |chip, preset, ask| {
        let question = Question { chip, preset, ask };
        let answer = answers
            .iter()
            .find(|answer| answer.question == question)
            .expect("every claim's question is asked");
        answer.obtained.value
    };
    let throughput = |chip, preset: Preset| value(chip, preset, Ask::Throughput(preset.slo_ns()));
    let each = |presets: &[Preset], figure: &dyn Fn(Preset) -> String| {
        presets.iter().map(|&preset| format!("{preset} {}", figure(preset))).collect::<Vec<_>>()
    };
    let over_private =
        |preset| format!("{:.2}x", throughput(HARDWARE, preset) / throughput(PRIVATE, preset));
    let p99_ns = |chip, preset| value(chip, preset, Ask::Tail(CLAIM_LOAD));
    let tail = |preset| format!("{:.1}x", p99_ns(PRIVATE, preset) / p99_ns(HARDWARE, preset));
    let over_software =
        |preset| format!("{:.2}x", throughput(HARDWARE, preset) / throughput(SOFTWARE, preset));
    let below_ideal = |preset| {
        format!("{:.1} %", 100.0 * (1.0 - throughput(HARDWARE, preset) / throughput(IDEAL, preset)))
    };
    let above_ideal = |preset| {
        let percent = |chip| 100.0 * (p99_ns(chip, preset) / p99_ns(IDEAL, preset) - 1.0);
        format!("{:.0} % (threshold 1: {:.0} %)", percent(HARDWARE), percent(HARDWARE_1))
    };
    vec![
        (
            "1x16 over 16x1, throughput under the limit: up to 1.4x",
            each(&CONVERGENT, &over_private),
        ),
        ("16x1 over 1x16, p99 before saturation (load 0.7): up to 4x", each(&CONVERGENT, &tail)),
        (
            "hardware over software, throughput under the limit: 2.3x to 2.7x",
            each(&SYNTHETIC, &over_software),
        ),
        (
            "below the ideal single queue, throughput under the limit: 3 to 15 %",
            each(&SYNTHETIC, &below_ideal),
        ),
        (
            "above the ideal single queue, p99 at load 0.7: 3 to 15 %",
            each(&CONVERGENT, &above_ideal),
        ),
    ]
}

fn throughput_text(answers: &[Answer]) -> String {
    let mut rows =
        vec![head("M/s under the limit", &[&[IDEAL], THROUGHPUT_CHIPS.as_slice()].concat())];
    for row in THROUGHPUT {
        let name = format!("{}, {:.1} us", row.preset, row.slo_ns / 1e3);
        rows.push(cells(name, answers, (row.preset, Ask::Throughput(row.slo_ns)), 2));
    }
    format!("obtained (reference)\n{}", output::table(&rows, 1))
}

fn tail_text(answers: &[Answer]) -> String {
    let mut rows = vec![head("p99 in ns", &TAIL_CHIPS)];
    for row in TAILS {
        rows.push(cells(
            format!("{} at {}", row.preset, row.load),
            answers,
            (row.preset, Ask::Tail(row.load)),
            0,
        ));
    }
    output::table(&rows, 1)
}

fn head(name: &str, chips: &[Chip]) -> Vec<String> {
    [name.to_owned()].into_iter().chain(chips.iter().map(Chip::to_string)).collect()
}

fn cells(
    name: String,
    answers: &[Answer],
    (preset, ask): (Preset, Ask),
    digits: usize,
) -> Vec<String> {
    let row = answers
        .iter()
        .filter(|answer| answer.question.preset == preset && answer.question.ask == ask);
    let cell = |answer: &Answer| {
        let reference = answer.reference.map(|reference| format!(" ({reference})"));
        format!("{}{}", estimate_text(&answer.obtained, digits), reference.unwrap_or_default())
    };
    [name].into_iter().chain(row.map(cell)).collect()
}

fn answer_json(answer: &Answer) -> Value {
    let Answer { question: Question { chip, preset, ask }, reference, obtained } = answer;
    let (figure, at) = match ask {
        Ask::Throughput(slo_ns) => ("throughput_under_slo_mrps", json!({ "slo_ns": slo_ns })),
        Ask::Tail(load) => ("p99_ns", json!({ "load": load })),
    };
    json!({
        "layout": chip.layout.to_string(),
        "threshold": chip.layout.has_threshold().then_some(chip.threshold),
        "workload": preset.to_string(),
        "at": at,
        "figure": figure,
        "reference": reference,
        "obtained": obtained.value,
        "standard_error": obtained.standard_error,
    })
}

const IDEAL: Chip = Chip::with_threshold(Layout::Ideal, 1);
const HARDWARE: Chip = Chip::with_threshold(Layout::Single, 2);
const HARDWARE_1: Chip = Chip::with_threshold(Layout::Single, 1);
const PRIVATE: Chip = Chip::with_threshold(Layout::Private, 1);
const SOFTWARE: Chip = Chip::with_threshold(Layout::Software, 1);
/// Presets whose tail at 16x1 converges.
const CONVERGENT: [Preset; 4] = [Preset::Fixed, Preset::Uniform, Preset::Exponential, Preset::Herd];
const SYNTHETIC: [Preset; 4] =
    [Preset::Fixed, Preset::Uniform, Preset::Exponential, Preset::ExtremeValue];
/// Before any configuration's saturation.
const CLAIM_LOAD: f64 = 0.7;
